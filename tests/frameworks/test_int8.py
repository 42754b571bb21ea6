"""A model in INT8: proven on the user's own records, mended or refused with the reason."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.client.extras import install_command
from cluster_serving.node.engines import engine, int8
from cluster_serving.node.engines.agreement import Agreement, Judged
from cluster_serving.node.engines.engine import Loaded
from cluster_serving.node.engines.kept_proofs import KeptProofs
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.lifecycle.options import TIMEOUT_S
from cluster_serving.node.models import detect
from cluster_serving.node.models.base import Array, LoadOptions, ModelError
from cluster_serving.node.models.calibration_data import data_hash
from cluster_serving.node.models.runtime import Precision, Runtime, TriedRuntime

# Not imported here: NNCF imports torch.utils.cpp_extension, and with it distutils, for all tests after these.
pytestmark = pytest.mark.skipif(find_spec("nncf") is None, reason="nncf is not installed")
CLASSES, RECORDS = 10, 400


class Place(NamedTuple):
    """A model, records of its user's, and what is kept of both."""

    model: Path
    data: Path
    kept: Path
    records: Array


def write_outlier(path: Path, prototypes: Array) -> Path:
    """A classifier whose hidden channel 0 is a thousand times as large as the others: 8 bits for all of them lose the others."""
    random = np.random.default_rng(2)
    first = random.normal(size=(prototypes.shape[1], 32))
    hidden = np.maximum(prototypes @ first, 0)
    second = np.linalg.pinv(hidden)
    first[:, 0] *= 1000
    second[0] /= 1000
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "first"], ["a"], "healthy"),
            helper.make_node("Relu", ["a"], ["hidden"]),
            helper.make_node("MatMul", ["hidden", "second"], ["y"], "outliers"),
        ],
        "outlier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", prototypes.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in (("first", first), ("second", second))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def save(path: Path, size: list[int], nodes: list[Any], weights: dict[str, Array]) -> Path:
    """A model of x [N, *size] to y [N, CLASSES]."""
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def write_attention(path: Path, prototypes: Array) -> Path:
    """A classifier of 4 words of 8 numbers: attention, and the nearest prototype."""
    random = np.random.default_rng(3)
    square = {name: (np.eye(8) + 0.1 * random.normal(size=(8, 8))).astype(np.float32) for name in ("q", "k", "v")}
    node = helper.make_node
    nodes = [
        *(node("MatMul", ["x", name], [f"{name}s"], name=name) for name in square),
        node("Transpose", ["ks"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["qs", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "vs"], ["mixed"]),
        node("Add", ["mixed", "x"], ["sum"]),
        node("Flatten", ["sum"], ["flat"]),
        node("MatMul", ["flat", "head"], ["y"], name="head"),
    ]
    return save(path, [4, 8], nodes, square | {"head": prototypes.reshape(CLASSES, -1).T.copy()})


def write_depthwise(path: Path, prototypes: Array) -> Path:
    """A classifier of 8 channels of 2 x 2, each convolved by itself, with weights of different sizes."""
    kernel = np.zeros((8, 1, 3, 3), np.float32)
    kernel[:, 0, 1, 1] = scales = np.linspace(0.5, 2, 8, dtype=np.float32)
    head = (prototypes / scales[:, None, None]).reshape(CLASSES, -1).T.copy()
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "kernel"], ["c"], name="depthwise", group=8, pads=[1, 1, 1, 1]),
        node("Flatten", ["c"], ["flat"]),
        node("MatMul", ["flat", "head"], ["y"], name="head"),
    ]
    return save(path, [8, 2, 2], nodes, {"kernel": kernel, "head": head.astype(np.float32)})


def no_bfloat16() -> bool:
    """Return False, because whether bfloat16 is faster here is left to chance."""
    return False


def all_but_nncf(name: str) -> ModuleSpec | None:
    return None if name == "nncf" else find_spec(name)


def loaded(place: Place, precision: Precision = "int8", **trials: Any) -> Loaded:
    kept = KeptProofs(str(place.kept), "conditions", lambda: "sha256:0123")
    given: dict[str, Any] = {"data": str(place.data), "agreement": 0.95} | trials
    return engine.load(
        detect.detect(str(place.model)), LoadOptions(), Runtime("native", precision), 8, Trials(**given), kept=kept
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The model is in INT8 already, and kept."""
    home = tmp_path_factory.mktemp("int8")
    random = np.random.default_rng(1)
    prototypes = random.normal(size=(CLASSES, 16))
    records = np.tile(prototypes, (RECORDS // CLASSES, 1)) + 0.05 * random.normal(size=(RECORDS, 16))
    made = Place(
        write_outlier(home / "outlier.onnx", prototypes), home / "rows.npy", home / "kept", records.astype(np.float32)
    )
    np.save(made.data, made.records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "has_bfloat16", no_bfloat16)
        loaded(made)
    return made


def test_a_layer_with_outliers_is_taken_back_and_the_rest_is_proven(place: Place) -> None:
    found = loaded(place)

    (candidate,) = found.candidates
    assert found.runtime == Runtime("openvino", "int8")
    assert (candidate.precision, candidate.refused, candidate.records) == ("int8", "", RECORDS // 2)
    assert candidate.at_least is not None
    assert candidate.at_least >= 0.95
    assert "1 of 2 layers in INT8; plain INT8 agrees on " in candidate.note
    assert candidate.note.endswith("so float32 took back y")
    answers = found.backend.run({"x": place.records})["y"]
    assert answers.argmax(axis=1).tolist() == [at % CLASSES for at in range(RECORDS)]


@pytest.mark.parametrize(
    ("ms", "rest", "told"),
    [
        (
            (2.0, 1.0),
            "bf16",
            "; with the rest in bfloat16 200 of 200 records agree, 98.5 % or more with 95 % confidence, 1 in place of 2 ms",
        ),
        ((2.0, 2.0), "f32", ""),
    ],
    ids=["faster", "not faster"],
)
def test_the_rest_is_in_bfloat16_where_that_is_faster(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ms: tuple[float, float], rest: str, told: str
) -> None:
    times = iter(ms)
    monkeypatch.setattr(int8, "has_bfloat16", lambda: True)

    def told_time(*_arguments: object) -> float:
        return next(times)

    monkeypatch.setattr(int8, "time_alone", told_time)
    other = place._replace(kept=tmp_path)

    found = loaded(other)

    assert found.candidates[0].note.partition("took back y")[2] == told
    (judged,) = tmp_path.glob("*/judged.json")
    assert msgspec.json.decode(judged.read_bytes(), type=Judged).rest == rest
    answers = found.backend.run({"x": place.records})["y"]
    assert answers.argmax(axis=1).tolist() == [at % CLASSES for at in range(RECORDS)]


def test_a_kept_model_needs_no_nncf_no_process_and_no_right_to_write(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (engine, int8):
        monkeypatch.setattr(module, "find_spec", all_but_nncf)
    monkeypatch.setattr(int8, "PROCESS", "no.such.module")
    shutil.copytree(place.kept, tmp_path / "kept")
    for lock in (tmp_path / "kept").glob(".*.lock"):
        lock.unlink()
        lock.mkdir()  # cannot be opened for writing, as in a store that is read only
    place = place._replace(kept=tmp_path / "kept")

    first, second = (loaded(place).candidates[0] for _ in range(2))
    raced = loaded(place, "auto").candidates[-1]

    assert first.ms is not None
    assert replace(first, ms=None) == replace(second, ms=None)
    assert (raced.precision, raced.records) == ("int8", first.records)


@pytest.mark.parametrize(
    ("write", "size", "told"),
    [
        (write_attention, (4, 8), r"[45] of [45] layers in INT8, quantised as a transformer"),
        (write_depthwise, (8, 2, 2), r"2 of 2 layers in INT8"),
    ],
)
def test_kinds_of_layers(
    write: Callable[[Path, Array], Path], size: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    random = np.random.default_rng(4)
    prototypes = random.normal(size=(CLASSES, *size)).astype(np.float32)
    records = np.tile(prototypes, (12, *[1] * len(size))) + 0.05 * random.normal(size=(120, *size))
    np.save(tmp_path / "rows.npy", records.astype(np.float32))
    own = Place(write(tmp_path / "model.onnx", prototypes), tmp_path / "rows.npy", tmp_path, records)

    (candidate,) = loaded(own).candidates

    assert (candidate.refused, candidate.records) == ("", 60)
    assert re.search(told, candidate.note)


def test_other_data_make_another_model(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "rows.npy", place.records + 1)
    monkeypatch.setattr(int8, "PROCESS", "no.such.module")

    with pytest.raises(ModelError, match=r"cannot be quantised to INT8: .*No module named 'no'"):
        loaded(place._replace(data=tmp_path / "rows.npy"))


def test_the_process_has_a_time_limit(place: Place, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not quantised to INT8 within 0\.001 s; set precision: f32"):
        loaded(place._replace(kept=tmp_path), patience_s=0.001)
    with pytest.raises(ModelError, match=rf"; to try again, take {tmp_path}/conditions-0123-int8-\w+ away"):
        loaded(place._replace(kept=tmp_path))


def test_both_times_of_quantising_share_the_limit_which_is_well_below_that_of_a_start(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patiences: list[float] = []
    run = subprocess.run

    def told(command: Sequence[str], **settings: Any) -> Any:
        if "cluster_serving.node.engines.quantising" in command:
            patiences.append(settings["timeout"])
        return run(command, **settings)

    monkeypatch.setattr(subprocess, "run", told)
    monkeypatch.setattr(int8, "has_bfloat16", no_bfloat16)
    began_s = time.monotonic()

    loaded(place._replace(kept=tmp_path))

    took_s = time.monotonic() - began_s
    first, second = patiences
    assert first <= Trials().patience_s <= TIMEOUT_S / 2
    assert first - took_s < second < first


def test_auto_races_float32_and_int8(place: Place) -> None:
    """The fastest wins, the more faithful one among equals; a difference of floats beyond accuracyTolerance refuses no INT8."""
    found = loaded(place, "auto", tolerance=1e-9)

    float32, quantised = found.candidates[0], found.candidates[-1]
    assert (float32.precision, quantised.precision) == ("f32", "int8")
    assert quantised.relative_error is not None
    assert quantised.relative_error > 1e-9
    assert (quantised.refused, quantised.records) == ("", RECORDS // 2)
    assert float32.ms is not None
    assert quantised.ms is not None
    assert found.runtime.precision == ("f32" if float32.ms <= 1.03 * quantised.ms else "int8")


def test_a_refusal_is_kept_and_ends_int8_and_auto_goes_on(place: Place, tmp_path: Path) -> None:
    """Here the judgement of a worker before is that of a model that cannot be mended."""
    kept = KeptProofs(str(tmp_path), "conditions", lambda: "sha256:0123")
    made = KeptProofs(str(place.kept), "conditions", lambda: "sha256:0123")
    digest = data_hash(str(place.data))
    source, target = made.int8_folder(digest), kept.int8_folder(digest)
    assert source is not None
    assert target is not None
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    judged = Judged(Agreement(150, 200), "150 of 200 records agree", "1 of 2 layers in INT8")
    (target / "judged.json").write_bytes(msgspec.json.encode(judged))

    with pytest.raises(ModelError, match="precision is int8, and INT8 is refused: 150 of 200 records agree"):
        loaded(place._replace(kept=tmp_path))
    automatic = loaded(place._replace(kept=tmp_path), "auto")

    assert automatic.candidates[-1].refused == "150 of 200 records agree"
    assert automatic.runtime.precision != "int8"


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ({"data": ""}, "set calibrationData"),
        ({"may_keep": False}, "the model is encrypted"),
        (
            {"agreement": 0.99},
            r"has 400 records, .* to prove that 99 % agree takes 598 records; give more, or set accuracyAgreement",
        ),
    ],
)
def test_int8_is_refused_before_anything_is_made(
    place: Place, tmp_path: Path, trials: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        loaded(place._replace(kept=tmp_path), **trials)

    assert not list(tmp_path.rglob("model.xml"))


def test_a_missing_nncf_is_named_with_its_command(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "find_spec", all_but_nncf)
    monkeypatch.setattr(engine, "find_spec", all_but_nncf)

    with pytest.raises(ModelError, match="needs the package nncf") as caught:
        loaded(place._replace(kept=tmp_path))
    automatic = loaded(place._replace(kept=tmp_path), "auto")

    assert install_command("int8") in str(caught.value)
    assert "int8" not in {each.precision for each in automatic.candidates}


def test_a_quantised_model_is_not_quantised_again(place: Place, tmp_path: Path) -> None:
    (model,) = place.kept.glob("*-int8-*/model.xml")

    with pytest.raises(ModelError, match=r"model\.xml is quantised already: set precision: f32"):
        loaded(place._replace(model=model, kept=tmp_path))


def share_of_plain(candidate: TriedRuntime) -> float:
    plain = re.search(r"plain INT8 agrees on (\S+) %", candidate.note)
    assert plain is not None
    return float(plain[1])


def test_the_users_metric_and_labels_judge_and_tell_which_layers_are_taken_back(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By this metric every answer for the last two classes is right, so that more of plain INT8 agrees than by arg max."""
    monkeypatch.setattr(int8, "has_bfloat16", no_bfloat16)
    labels = np.arange(RECORDS) % CLASSES
    np.savez(tmp_path / "rows.npz", x=place.records, labels=labels)
    (tmp_path / "metric.py").write_text(
        f"def score(outputs, labels):\n    return (outputs['y'].argmax(axis=1) == labels) | (labels >= {CLASSES - 2})\n"
    )

    found = loaded(
        place._replace(data=tmp_path / "rows.npz", kept=tmp_path / "kept"), metric=f"{tmp_path}/metric.py:score"
    )

    (by_arg_max,), (by_metric,) = loaded(place).candidates, found.candidates
    assert (by_metric.refused, by_metric.arg_max_agreement) == ("", 1.0)
    assert by_metric.note.endswith("so float32 took back y")
    assert share_of_plain(by_arg_max) < share_of_plain(by_metric) < 95


def test_another_metric_makes_another_model(place: Place, tmp_path: Path) -> None:
    metric = tmp_path / "metric.py"
    metric.write_text("def score(outputs, labels): ...")
    trials = str(place.data), f"{metric}:score"

    before = data_hash(*trials)
    metric.write_text("def score(outputs, labels): pass")

    assert len({before, data_hash(*trials), data_hash(str(place.data))}) == 3
