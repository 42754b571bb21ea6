"""From the contents of a slot to the arrays of a run."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import cv2
import numpy as np
import pytest

from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire.bytes_in_text import bytes_of
from cluster_serving.client.wire.encryption import RecordCipher
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.models.secrets import Secrets
from cluster_serving.node.processing.custom import load as load_processing
from cluster_serving.node.processing.options import DecodeOptions, ImageOptions
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.reader.open_batch import OpenBatch
from cluster_serving.node.ring.input_layout import plan
from cluster_serving.node.ring.slot import Geometry, Outcome, Slot
from cluster_serving.node.worker.inputs import ModelRun, SlotInputs

GEOMETRY = Geometry(slots=1, batch=8, slot_bytes=1 << 20, workers=1)
PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


def backend(folder: Path, inputs: str) -> Backend:
    """A real model that takes these inputs."""
    path = folder / "model.py"
    path.write_text(
        dedent(
            f"""
            class Model:
                inputs = {inputs}
                outputs = [("y", "float32", (None,))]

                def predict(self, batch):
                    raise NotImplementedError
            """
        )
    )
    return load(detect(str(path)), LoadOptions())


def fill(model: Backend, *records: Mapping[str, Any], raw: bool = False) -> Slot:
    """A slot as the reader fills it."""
    decoder = RecordDecoder(model.inputs, b"reply", DecodeOptions(raw=raw))
    slot = Slot(memoryview(bytearray(GEOMETRY.slot_stride)), GEOMETRY)
    open_batch: OpenBatch | None = None
    for number, values in enumerate(records):
        record = decoder.decode(b"1-%d" % number, encode_record(f"u{number}", values), 0)
        assert record.error is None
        layout = plan(record.signature, GEOMETRY.batch, GEOMETRY.slot_bytes)
        open_batch = open_batch or OpenBatch(0, slot, layout, GEOMETRY, 0, GEOMETRY.batch)
        open_batch.add(b"1-%d" % number, record)
    assert open_batch is not None
    open_batch.close()
    return slot


def preprocessed(
    folder: Path, inputs: str, code: str, *records: Mapping[str, Any], secrets: Secrets | None = None
) -> tuple[list[ModelRun], list[Outcome]]:
    model = backend(folder, inputs)
    steps = folder / "steps.py"
    steps.write_text(f"import numpy as np\n\nclass Steps:\n    def preprocess(self, record):\n        {code}\n")
    decoder = SlotInputs(model.inputs, ImageOptions(), secrets, load_processing(f"{steps}:Steps"))
    return decoder.decode(fill(model, *records, raw=True), range(len(records)))


def reasons(outcomes: list[Outcome]) -> dict[int, str]:
    found: dict[int, str] = {}
    for outcome in outcomes:
        assert outcome.error is not None
        assert outcome.error[0] == ErrorCode.INVALID_INPUT
        found |= dict.fromkeys(outcome.rows, outcome.error[1])
    return found


def png(pixels: np.ndarray[Any, np.dtype[np.uint8]] = PIXELS) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


X4 = '[("x", "float32", (None, 4))]'
TEXT = '[("t", "str", (None, {}))]'


def test_preprocess_gets_what_the_client_sent(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "tensor": np.array([[1, 2]], np.int64),
        "flag": np.array([True, False]),
        "image": png(),
        "text": {"string": "ü"},
        "texts": [["a"], ["b"]],
        "sparse": [np.array([[0, 1], [2, 0]]), np.array([7.0, 8.0]), np.array([2, 3])],
        "boxes": {"sequence": [np.array([1, 2]), np.array([3])]},
    }
    code = """
        assert list(record) == ["tensor", "flag", "image", "text", "texts", "sparse", "boxes"]
        assert (record["tensor"].dtype, record["tensor"].tolist()) == (np.int64, [[1, 2]])
        assert (record["flag"].dtype, record["flag"].tolist()) == (bool, [True, False])
        assert record["image"].startswith(b"\\x89PNG")
        assert (record["text"], record["texts"]) == ("ü", [["a"], ["b"]])
        assert record["sparse"].tolist() == [[0, 0, 7], [8, 0, 0]]
        assert [box.tolist() for box in record["boxes"]] == [[1, 2], [3]]
        return [1, 2, 3, 4]
    """

    (run,), broken = preprocessed(tmp_path, X4, code.strip(), values)

    assert broken == []
    assert run.inputs["x"].tolist() == [[1, 2, 3, 4]]
    assert run.inputs["x"].dtype == np.float32


def test_rows_of_one_shape_run_together(tmp_path: Path) -> None:
    code = "return np.full(record['n'], 0.5)"
    runs, broken = preprocessed(tmp_path, '[("x", "float32", (None, None))]', code, *({"n": n} for n in (2, 3, 2, 0)))

    assert broken == []
    assert [(run.rows, run.inputs["x"].shape) for run in runs] == [([0, 2], (2, 2)), ([1], (1, 3)), ([3], (1, 0))]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "return {'x': record['v']} if record['v'].size == 4 else 1 / 0",
            "preprocess: ZeroDivisionError: division by zero",
        ),
        (
            "return record['v'] if record['v'].size == 4 else exit(3)",
            "preprocess: SystemExit: 3",
        ),
        ("return record['v']", "what preprocess returned: input 'x' takes float32 [4] a record, not float32 [3]"),
        (
            "return record['v'] if record['v'].size == 4 else None",
            "what preprocess returned: a NoneType, and the model takes x",
        ),
        (
            "return {'x': record['v']} if record['v'].size == 4 else {'y': 1}",
            "what preprocess returned: a dict of 'y', and",
        ),
        (
            "return {'x': record['v']} if record['v'].size == 4 else {}",
            "what preprocess returned: a dict of no values, and",
        ),
        (
            "return record['v'] if record['v'].size == 4 else ['a'] * 4",
            "what preprocess returned: input 'x' takes float32, and values of <U1 do not convert to it",
        ),
        ("return record['v'] if record['v'].size == 4 else [[1], [2, 3]]", "what preprocess returned: "),
        (
            "return record['v'] if record['v'].size == 4 else [None] * 4",
            "what preprocess returned: input 'x' takes float32, and values of object do not convert to it",
        ),
        (
            "return record['v'] if record['v'].size == 4 else np.ma.array([1, 2, 3, 4], mask=[0, 0, 0, 1])",
            "what preprocess returned: input 'x': an array with masked values cannot be sent: fill them",
        ),
        (
            "return record['v'] if record['v'].size == 4 else np.ones(4, 'm8[ms]')",
            "what preprocess returned: input 'x' takes float32, and values of timedelta64[ms] do not convert to it",
        ),
        (
            "return record['v'] if record['v'].size == 4 else np.zeros((2, 4))",
            "what preprocess returned: input 'x' has 2 rows",
        ),
    ],
)
def test_a_bad_record_fails_alone(tmp_path: Path, code: str, reason: str) -> None:
    good, bad = {"v": np.ones(4, np.float32)}, {"v": np.ones(3, np.float32)}

    (run,), broken = preprocessed(tmp_path, X4, code, good, bad, good)

    assert run.rows == [0, 2]
    assert reasons(broken)[1].startswith(reason)


def test_the_line_at_fault_is_named(tmp_path: Path) -> None:
    runs, broken = preprocessed(tmp_path, X4, "return record['absent']", {"v": 1})

    assert runs == []
    assert reasons(broken) == {0: "preprocess: KeyError: 'absent' (steps.py, line 5)"}


def test_several_inputs_and_text_are_bound_by_name(tmp_path: Path) -> None:
    inputs = '[("a", "uint8", (None, 2)), ("t", "str", (None,))]'
    (run,), broken = preprocessed(tmp_path, inputs, "return {'t': 'hi', 'a': [[1, 255]]}", {"v": 1}, {"v": 2})

    assert broken == []
    assert run.inputs["a"].tolist() == [[1, 255], [1, 255]]
    assert run.inputs["t"].tolist() == ["hi", "hi"]


def test_numbers_that_an_input_cannot_hold_are_refused(tmp_path: Path) -> None:
    _, broken = preprocessed(tmp_path, '[("a", "uint8", (None, 1))]', "return [256]", {"v": 1})

    assert "256 of int64 would be lost" in reasons(broken)[0]


def test_durations_are_no_whole_numbers(tmp_path: Path) -> None:
    _, broken = preprocessed(tmp_path, '[("n", "int64", (None, 1))]', "return np.ones(1, 'm8[ms]')", {"v": 1})

    assert "values of timedelta64[ms] do not convert to it" in reasons(broken)[0]


def test_a_preprocess_that_fills_the_same_array_each_time(tmp_path: Path) -> None:
    code = "self.x = getattr(self, 'x', np.zeros(4, np.float32)); self.x[:] = record['v']; return self.x"

    (run,), _ = preprocessed(tmp_path, X4, code, *({"v": n} for n in range(3)))

    assert run.inputs["x"].tolist() == [[n] * 4 for n in range(3)]


def test_text_is_refused_where_numbers_are_returned(tmp_path: Path) -> None:
    _, broken = preprocessed(tmp_path, TEXT.format(1), "return 3", {"v": 1})

    assert "input 't' takes text" in reasons(broken)[0]


class OpenModel:
    """Takes any number of tensors."""

    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Gives them back."""
        return batch


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return {'second': 2, 'first': [1, 1]}", {"input1": [2.0], "input2": [[1.0, 1.0]]}),
        ("return [5]", {"input": [[5.0]]}),
    ],
)
def test_models_that_take_any_tensors_get_them_in_the_returned_order(
    tmp_path: Path, code: str, expected: dict[str, Any]
) -> None:
    steps = tmp_path / "steps.py"
    steps.write_text(f"class Steps:\n    def preprocess(self, record):\n        {code}\n")
    model = OpenModel()
    decoder = SlotInputs(model.inputs, ImageOptions(), None, load_processing(f"{steps}:Steps"))

    (run,), broken = decoder.decode(fill(model, {"v": 1}, raw=True), range(1))

    assert broken == []
    assert {name: array.tolist() for name, array in run.inputs.items()} == expected


@pytest.mark.parametrize(
    ("dims", "sent", "expected"),
    [
        ("", {"string": "a"}, "a"),
        ("", ["a"], "a"),
        ("1", {"string": "a"}, ["a"]),
        ("2", ["a", "b"], ["a", "b"]),
        ("2", [["a", "b"]], ["a", "b"]),
        ("None", ["a", "b", "c"], ["a", "b", "c"]),
    ],
)
def test_text_gets_the_shape_of_its_input(tmp_path: Path, dims: str, sent: Any, expected: Any) -> None:
    model = backend(tmp_path, TEXT.format(dims))

    (run,), broken = SlotInputs(model.inputs, ImageOptions()).decode(fill(model, {"t": sent}), range(1))

    assert broken == []
    assert run.inputs["t"].tolist() == [expected]


@pytest.mark.parametrize(
    ("dims", "sent"), [("", ["a", "b", "c"]), ("2", [["a", "b"], ["c", "d"]]), ("None", [["a"], ["b"], ["c"]])]
)
def test_text_with_a_batch_dimension_is_a_whole_batch(tmp_path: Path, dims: str, sent: Any) -> None:
    model = backend(tmp_path, TEXT.format(dims))

    runs, broken = SlotInputs(model.inputs, ImageOptions()).decode(fill(model, {"t": sent}, {"t": sent}), range(2))

    assert broken == []
    assert [(run.rows, run.whole, run.inputs["t"].tolist()) for run in runs] == [([0], True, sent), ([1], True, sent)]


def test_text_and_numbers_with_a_batch_dimension_go_together(tmp_path: Path) -> None:
    model = backend(tmp_path, '[("t", "str", (None,)), ("x", "int64", (None, 2))]')
    numbers = np.arange(6).reshape(3, 2)

    (run,), _ = SlotInputs(model.inputs, ImageOptions()).decode(
        fill(model, {"t": ["a", "b", "c"], "x": numbers}), range(1)
    )

    assert (run.whole, run.inputs["t"].tolist(), run.inputs["x"].tolist()) == (True, ["a", "b", "c"], numbers.tolist())


def test_text_of_another_shape_fails_alone(tmp_path: Path) -> None:
    model = backend(tmp_path, TEXT.format(2))
    slot = fill(model, {"t": ["a", "b"]}, {"t": ["a"]}, {"t": ["c", "d"]})

    (run,), broken = SlotInputs(model.inputs, ImageOptions()).decode(slot, range(3))

    assert run.rows == [0, 2]
    assert reasons(broken) == {1: "input 't' takes str [N,2], not text of shape [1]"}


def test_a_run_is_cut_into_halves() -> None:
    run = ModelRun([4, 5, 7], {"x": np.arange(6).reshape(3, 2), "t": np.array(["a", "b", "c"], object)})

    first, rest = run.halves()

    assert (first.rows, rest.rows) == ([4], [5, 7])
    assert [part.inputs["x"].tolist() for part in (first, rest)] == [[[0, 1]], [[2, 3], [4, 5]]]
    assert [part.inputs["t"].tolist() for part in (first, rest)] == [["a"], ["b", "c"]]


IMAGE = '[("image", "uint8", (None, 2, 2, 3))]'


@pytest.mark.parametrize("raw", [False, True])
def test_encrypted_images_are_opened_and_a_false_one_fails_alone(tmp_path: Path, raw: bool) -> None:
    cipher, other = RecordCipher("secret", "salt"), RecordCipher("other", "salt")
    records = [{"image": sealed} for sealed in (cipher.seal(png()), other.seal(png()), png())]
    secrets = Secrets("secret", "salt")
    if raw:
        code = "import cv2; return cv2.imdecode(np.frombuffer(record['image'], np.uint8), cv2.IMREAD_COLOR)"
        runs, broken = preprocessed(tmp_path, IMAGE, code, *records, secrets=secrets)
    else:
        model = backend(tmp_path, IMAGE)
        runs, broken = SlotInputs(model.inputs, ImageOptions(), secrets).decode(fill(model, *records), range(3))

    (run,) = runs
    assert run.rows == [0]
    np.testing.assert_array_equal(run.inputs["image"][0], PIXELS)
    assert all(reason.startswith("input 'image': ") for reason in reasons(broken).values())
    assert reasons(broken).keys() == {1, 2}


class BytesModel(OpenModel):
    """Takes bytes as text."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("content", "str", (None, 1), takes_bytes=True),)


@pytest.mark.parametrize("secrets", [None, Secrets("secret", "salt")])
def test_bytes_become_the_text_that_stands_for_them(secrets: Secrets | None) -> None:
    contents = [b"\xff\x00", "née".encode()]
    sealed = [RecordCipher(secrets.secret, secrets.salt).seal(each) if secrets else each for each in contents]

    slot = fill(BytesModel(), *({"content": each} for each in sealed))
    (run,), broken = SlotInputs(BytesModel.inputs, ImageOptions(), secrets).decode(slot, range(2))

    assert [bytes_of(text) for text in run.inputs["content"][:, 0]] == contents
    assert broken == []


@pytest.mark.parametrize("code", ["return record['photo']", "return {'content': [record['photo']]}"])
def test_preprocess_returns_bytes_for_an_input_that_takes_them(tmp_path: Path, code: str) -> None:
    steps = tmp_path / "steps.py"
    steps.write_text(f"class Steps:\n    def preprocess(self, record):\n        {code}\n")
    decoder = SlotInputs(BytesModel.inputs, ImageOptions(), processing=load_processing(f"{steps}:Steps"))

    (run,), broken = decoder.decode(fill(BytesModel(), {"photo": b"\xff\xd8\x00"}, raw=True), range(1))

    assert [bytes_of(text) for text in run.inputs["content"][:, 0]] == [b"\xff\xd8\x00"]
    assert broken == []


class SequenceModel(OpenModel):
    """Takes a sequence of arrays."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("boxes", "sequence(float32)", None, None),)


def test_preprocess_returns_a_sequence_for_an_input_that_takes_one(tmp_path: Path) -> None:
    steps = tmp_path / "steps.py"
    steps.write_text("class Steps:\n    def preprocess(self, record):\n        return [*record['x'], record['y']]\n")
    decoder = SlotInputs(SequenceModel.inputs, ImageOptions(), processing=load_processing(f"{steps}:Steps"), calls=True)
    good, bad = {"x": {"sequence": [np.array([1, 2])]}, "y": np.array([3])}, {"x": np.array([1]), "y": {"string": "a"}}

    (run,), broken = decoder.decode(fill(SequenceModel(), good, bad, raw=True), range(2))

    assert [(box.dtype, box.tolist()) for box in run.inputs["boxes"].item()] == [("float32", [1, 2]), ("float32", [3])]
    assert reasons(broken)[1].startswith("what preprocess returned: input 'boxes' takes a sequence(float32), and")


def images(number: int, *broken: int) -> list[dict[str, Any]]:
    return [{"image": b"no image" if at in broken else png(PIXELS + number + at)} for at in range(4)]


def test_images_are_decoded_into_memory_that_serves_every_batch(tmp_path: Path) -> None:
    model = backend(tmp_path, IMAGE)
    decoder = SlotInputs(model.inputs, ImageOptions())

    (run,), _ = decoder.decode(fill(model, *images(0)), range(4))
    address = run.inputs["image"].ctypes.data

    for rows in (range(4), range(1, 3)):
        (run,), _ = decoder.decode(fill(model, *images(10)), rows)

        assert run.inputs["image"].ctypes.data == address
        np.testing.assert_array_equal(run.inputs["image"], [PIXELS + 10 + row for row in rows])


@pytest.mark.parametrize("broken", [0, 2, 3])
def test_a_broken_image_leaves_no_gap_in_its_batch(tmp_path: Path, broken: int) -> None:
    model = backend(tmp_path, IMAGE)

    (run,), faults = SlotInputs(model.inputs, ImageOptions()).decode(fill(model, *images(0, broken)), range(4))

    assert reasons(faults).keys() == {broken}
    assert run.rows == [row for row in range(4) if row != broken]
    np.testing.assert_array_equal(run.inputs["image"], [PIXELS + row for row in run.rows])


def test_rows_that_are_views_of_one_array_in_another_order_are_put_in_order(tmp_path: Path) -> None:
    steps = "import numpy as np\n\nALL = np.arange(12, dtype=np.float32).reshape(3, 4)\n"
    steps += "\nclass Steps:\n    def preprocess(self, record):\n        return ALL[int(record['at'])]\n"
    (tmp_path / "steps.py").write_text(steps)
    model = backend(tmp_path, X4)
    decoder = SlotInputs(model.inputs, ImageOptions(), None, load_processing(f"{tmp_path / 'steps.py'}:Steps"))
    slot = fill(model, *[{"at": np.array(at)} for at in (2, 0, 1)], raw=True)

    (run,), _ = decoder.decode(slot, range(3))

    assert run.inputs["x"][:, 0].tolist() == [8, 0, 4]


def test_secrets_that_open_nothing_are_found_at_the_start() -> None:
    with pytest.raises(ModelError, match=r"^recordEncrypted is true, but the salt is empty\.$"):
        SlotInputs(OpenModel().inputs, ImageOptions(), Secrets("secret", ""))
