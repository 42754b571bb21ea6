"""From the outputs of a run to what lies in the slot."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from cluster_serving.client.errors import ErrorCode, RecordFailed
from cluster_serving.client.protocol.results import plain
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.tensors import Array
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.processing.custom import Processing
from cluster_serving.node.processing.topn import Filter
from cluster_serving.node.ring.slot import Geometry, Outcome, Row, Slot
from cluster_serving.node.worker.inputs import ModelRun
from cluster_serving.node.worker.outputs import OutputArea, ResultTooLargeError, SlotOutputs
from support.published import results_of

GEOMETRY = Geometry(slots=1, batch=8, slot_bytes=4096, workers=1)


class Steps:
    """A user's object."""

    def __init__(self, postprocess: Callable[[dict[str, Array]], Any]) -> None:
        self.postprocess = postprocess


def processing(postprocess: Callable[[dict[str, Array]], Any]) -> Processing:
    return Processing(Steps(postprocess), Path(__file__))


def new_slot(rows: int) -> Slot:
    slot = Slot(memoryview(bytearray(GEOMETRY.slot_stride)), GEOMETRY)
    slot.fill(b"", [Row(b"1-%d" % n, b"u%d" % n, b"", 0, n) for n in range(rows)], rows)
    return slot


def store(
    outputs: dict[str, Array],
    *,
    keep: Filter | None = None,
    steps: Processing | None = None,
    whole: bool = False,
    in_float16: bool = False,
) -> list[Any]:
    """Return the answer of each record: a value, outputs, or its `RecordFailed`."""
    rows = 1 if whole else len(next(iter(outputs.values())))
    slot = new_slot(rows)
    area = OutputArea(slot)
    outcomes = SlotOutputs(keep, steps, in_float16=in_float16).store(
        area, ModelRun(list(range(rows)), {}, whole), outputs
    )
    slot.add(outcomes, sum(len(outcome.rows) for outcome in outcomes), area.used)
    answers: list[Any] = []
    for result in results_of(slot):
        try:
            answers.append(plain(result))
        except RecordFailed as error:
            answers.append(error)
    return answers


@pytest.mark.parametrize("dtype", [object, "U3", "T"])
def test_text_keeps_the_shape_of_its_rows(dtype: Any) -> None:
    texts = np.array([["a", "ü\n"], ["", "c"]], np.dtypes.StringDType() if dtype == "T" else dtype)

    assert store({"t": texts}) == [["a", "ü\n"], ["", "c"]]
    assert store({"t": texts[:, 0]}) == ["a", ""]
    assert store({"t": texts}, whole=True) == [[["a", "ü\n"], ["", "c"]]]


def test_in_float16_go_floats_that_are_sent_as_they_are() -> None:
    outputs = {"y": np.array([[0.1, np.inf], [np.nan, -65504]]), "n": np.array([2**40, 1]), "t": np.array(["a", "b"])}

    first, second = store(outputs, in_float16=True)

    assert [each.dtype.name for each in first[:2]] == ["float16", "int64"]
    assert first[0].tolist() == [np.float16(0.1), np.inf]
    assert np.array_equal(second[0], [np.nan, -65504], equal_nan=True)
    assert (first[1], second[1], first[2]) == (2**40, 1, "a")
    assert store({"y": np.array([[0.125001, 9e9]])}, keep=Filter("topN", 1), in_float16=True) == [[[1, 9e9]]]


def test_only_rows_with_numbers_that_float16_does_not_hold_are_refused() -> None:
    outputs: dict[str, Array] = {
        "y": np.array([[1, 2], [3, 70_000], [65_519, np.inf], [-65_520, 1]], np.float32),
        "n": np.arange(4),
    }

    first, second, third, fourth = store(outputs, in_float16=True)

    assert [each.tolist() for each in (*first, *third)] == [[1, 2], 0, [65_504, np.inf], 2]
    for refused in (second, fourth):
        assert "output 'y' has numbers that float16 does not hold, 65520 or more from 0: set outputDtype: model" in str(
            refused
        )


def test_text_beside_numbers() -> None:
    answers = store({"y": np.array([1.5, 2.5]), "t": np.array(["a", "b"], object), "n": np.array([[True], [False]])})

    assert [(y.item(), t, n.tolist()) for y, t, n in answers] == [(1.5, "a", [True]), (2.5, "b", [False])]


@pytest.mark.parametrize("dtype", [">f4", "<f2", ">i8", "u1", "?"])
def test_numbers_of_any_dtype_and_byte_order(dtype: str) -> None:
    output = np.array([[0, 1], [1, 0]], dtype)

    answers = store({"y": output})

    assert [answer.tolist() for answer in answers] == output.tolist()
    assert answers[0].dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (np.zeros(2, np.complex64), "output 'y' is of dtype complex64, which cannot be sent"),
        (np.zeros(2, "datetime64[s]"), "output 'y' is of dtype datetime64[s], which cannot be sent"),
        (np.zeros(2, "S3"), "output 'y' is of dtype |S3, which cannot be sent"),
        (np.array(["a", 1], object), "output 'y' holds int objects, and only numbers and text can be sent"),
        (np.array(["a", None], object), "output 'y' holds NoneType objects, and only numbers and text can be sent"),
    ],
)
def test_other_dtypes_are_refused(output: Array, reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        store({"y": output})

    assert str(caught.value) == reason


def test_a_filter_and_text_fail_for_each_record() -> None:
    for answer in store({"t": np.array(["a", "b"], object)}, keep=Filter("topN", 1)):
        assert isinstance(answer, RecordFailed)
        assert (answer.code, answer.reason) == (
            ErrorCode.INFERENCE_FAILED,
            "output 't': topN takes numbers, and this is text",
        )


def test_a_filter_takes_each_row_of_a_whole_batch() -> None:
    output = np.array([[3, 2, 1, 4, 5], [9, 8, 7, 6, 5]], np.float32)

    assert store({"y": output}, keep=Filter("topN", 2), whole=True) == [[[[4, 5.0], [3, 4.0]], [[0, 9.0], [1, 8.0]]]]
    (failed,) = store({"y": output, "z": np.zeros(3)}, keep=Filter("topN", 2), whole=True)
    assert isinstance(failed, RecordFailed)
    assert failed.reason.endswith("the outputs have not the same rows: 'y' [2, 5], 'z' [3]")


def test_postprocess_gets_one_record_and_its_faults_are_that_records() -> None:
    def postprocess(outputs: dict[str, Array]) -> Any:
        assert (outputs["y"].shape, outputs["n"].shape, outputs["t"].shape) == ((2,), (), ())
        return {"sum": outputs["y"].sum(), "inverse": 1 // int(outputs["n"]), "text": outputs["t"]}

    outputs = {"y": np.ones((3, 2)), "n": np.array([1, 0, 2]), "t": np.array(["a", "b", "c"], object)}

    first, second, third = store(outputs, steps=processing(postprocess))

    assert (first, third) == ({"sum": 2.0, "inverse": 1, "text": "a"}, {"sum": 2.0, "inverse": 0, "text": "c"})
    assert isinstance(second, RecordFailed)
    assert second.code == ErrorCode.INFERENCE_FAILED
    assert second.reason.startswith("postprocess: ZeroDivisionError: ")
    assert "(test_outputs.py, line " in second.reason


def test_postprocess_may_return_arrays_and_others_for_each_record() -> None:
    def postprocess(outputs: dict[str, Array]) -> Any:
        n = int(outputs["n"])
        return [None, {"a": np.arange(3), "t": np.array(["x"])}, {"b": np.zeros((0, 2))}, {"bad": np.array([1j])}][n]

    first, second, third, fourth = store({"n": np.arange(4)}, steps=processing(postprocess))

    assert first is None
    assert second[0].tolist() == [0, 1, 2]
    assert second[1] == ["x"]
    assert third.shape == (0, 2)
    assert isinstance(fourth, RecordFailed)
    assert fourth.reason == "output 'bad' is of dtype complex128, which cannot be sent"


def test_postprocess_gets_a_whole_batch_at_once() -> None:
    answers = store({"y": np.ones((7, 2))}, steps=processing(lambda outputs: outputs["y"].shape), whole=True)

    assert answers == [[7, 2]]


@pytest.mark.parametrize("fits", [True, False])
def test_a_result_that_is_too_large_leaves_room_for_the_next(fits: bool) -> None:
    def postprocess(outputs: dict[str, Array]) -> Any:
        n = int(outputs["n"])
        if n == 1:
            return {"small": np.zeros(8), "large": np.zeros(300 if fits else 600)}
        return "x" * 1000

    answers = store({"n": np.arange(3)}, steps=processing(postprocess))

    if fits:
        assert len(answers) == 2, "the third one is run later"
    else:
        assert isinstance(answers[1], RecordFailed)
        assert "do not fit into the 4096 bytes of a slot (slotBytes" in answers[1].reason
        assert answers[2] == "x" * 1000


def test_a_thousand_arrays_are_too_many() -> None:
    arrays = {f"name{n}": np.zeros(()) for n in range(1000)}
    (answer,) = new = store({"n": np.zeros(1)}, steps=processing(lambda outputs: arrays))

    assert len(new) == 1
    assert isinstance(answer, RecordFailed)
    assert answer.code == ErrorCode.RESULT_TOO_LARGE


def test_a_model_of_more_outputs_than_redis_takes_is_the_runs_fault() -> None:
    with pytest.raises(ModelError, match="at most 3500"):
        store({f"name{n}": np.zeros((1, 1)) for n in range(3501)})


def test_arrays_of_a_row_that_do_not_fit_are_the_runs_fault() -> None:
    slot = new_slot(2)
    area = OutputArea(slot)

    with pytest.raises(ResultTooLargeError):
        SlotOutputs(None, None).store(area, ModelRun([0, 1], {}), {"y": np.zeros((2, 600))})

    assert (area.used, area.full) == (0, False)


@pytest.mark.parametrize(("values", "stored", "full"), [(4, 8, False), (300, 1, True), (120, 4, True)])
def test_as_many_of_the_first_rows_are_stored_as_have_room(values: int, stored: int, full: bool) -> None:
    slot = new_slot(8)
    area = OutputArea(slot)

    (outcome,) = SlotOutputs(None, None).store(area, ModelRun(list(range(8)), {}), {"y": np.zeros((8, values))})

    assert (outcome.rows, area.full) == (list(range(stored)), full)
    assert area.used == 8 * values * stored


@pytest.mark.parametrize(
    ("keep", "steps"),
    [(None, None), (Filter("topN", 100), None), (None, processing(lambda outputs: outputs["y"].tolist()))],
    ids=["arrays", "filtered", "customized"],
)
def test_a_row_without_room_beside_its_neighbours_has_no_outcome(keep: Filter | None, steps: Processing | None) -> None:
    slot = new_slot(8)
    area = OutputArea(slot)
    area.used = 4000

    outcomes = SlotOutputs(keep, steps).store(area, ModelRun([3], {}), {"y": np.zeros((1, 500))})

    assert (outcomes, area.used, area.full) == ([], 4000, True)


@pytest.mark.parametrize(
    ("keep", "steps", "sent"),
    [
        (None, None, ["y float32 [N,3]"]),
        (Filter("topN", 2), None, ["value str [N]"]),
        (None, processing(lambda outputs: outputs), []),
    ],
    ids=["arrays", "filtered", "customized"],
)
def test_the_outputs_that_are_told_are_those_that_are_sent(
    keep: Filter | None, steps: Processing | None, sent: list[str]
) -> None:
    outputs = SlotOutputs(keep, steps, [TensorSpec("y", "float32", (None, 3))]).outputs

    assert [spec.describe() for spec in outputs] == sent


def test_room_for_rows_of_a_known_size() -> None:
    area = OutputArea(new_slot(1))
    assert (area.rows(1000), area.rows(10_000)) == (4, 1)

    area.used = 3000

    assert (area.rows(1000), area.rows(10_000)) == (1, 0)


def test_what_a_filter_left_is_packed() -> None:
    slot = new_slot(1)
    area = OutputArea(slot)
    area.used = 64

    (outcome,) = SlotOutputs(Filter("topN", 1), None).store(area, ModelRun([0], {}), {"y": np.array([[np.nan, 2]])})

    ((start, length),) = outcome.filtered
    assert outcome == Outcome([0], filtered=[(64, area.used - 64)])
    assert msgspec.msgpack.decode(slot.outputs[start : start + length]) == [[1, 2.0]]


@pytest.mark.parametrize("dtype", ["str", "sequence of map of float32"])
def test_a_filter_of_an_output_that_is_known_not_to_be_numbers_is_refused_at_the_start(dtype: str) -> None:
    outputs = [TensorSpec("p", "float32", (None, 3)), TensorSpec("label", dtype, (None,))]

    with pytest.raises(
        ModelError, match=rf"^postProcessing is topN\(3\), which takes .* 'label' of the model is {dtype}: set "
    ):
        SlotOutputs(Filter("topN", 3), None, outputs)


def test_filter_and_postprocess_exclude_each_other() -> None:
    steps = processing(json.dumps)

    with pytest.raises(
        ModelError, match=r"^postProcessing is topN\(3\), and the class of processing has a postprocess"
    ):
        SlotOutputs(Filter("topN", 3), steps)
