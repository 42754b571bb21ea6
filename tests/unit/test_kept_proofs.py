"""Proofs that one worker keeps are found by later workers under the same conditions."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.node.config import conditions as module
from cluster_serving.node.config.conditions import key_of, of_proof
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.kept_proofs import KeptProofs, draft, forget, remove_left
from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.models.runtime import Runtime

NATIVE, OPENVINO = Runtime("native", "f32"), Runtime("openvino", "bf16")
FINE, FINER, FAULT = Proof(2e-7), Proof(1e-8), Proof(fault="row 2 differs by 0.9")
TRANSIENT = Proof(fault="4 rows fail together: out of memory", is_lasting=False)


def proofs(directory: Path, conditions: str = "c", model: str = "sha256:0123") -> KeptProofs:
    return KeptProofs(str(directory), conditions, lambda: model)


@pytest.mark.parametrize(
    ("kept", "found"),
    [
        ([], None),
        ([FINE], FINE),
        ([FINE, FINER], FINE),
        ([FINE, FAULT], FAULT),
        ([FAULT, FINE], FAULT),
        ([TRANSIENT], None),
        ([FINE, TRANSIENT], FINE),
    ],
)
def test_the_first_proof_stays_until_a_fault(kept: Sequence[Proof], found: Proof | None, tmp_path: Path) -> None:
    for proof in kept:
        proofs(tmp_path / "proofs").keep(NATIVE, proof)

    assert proofs(tmp_path / "proofs").find(NATIVE) == found


@pytest.mark.parametrize(
    ("conditions", "model", "runtime"),
    [("other", "sha256:0123", NATIVE), ("c", "sha256:4567", NATIVE), ("c", "sha256:0123", OPENVINO), ("c", "", NATIVE)],
)
def test_another_model_or_runtime_is_proven_anew(conditions: str, model: str, runtime: Runtime, tmp_path: Path) -> None:
    proofs(tmp_path).keep(NATIVE, FAULT)

    assert proofs(tmp_path, conditions, model).find(runtime) is None


def test_a_model_without_fingerprint_is_not_kept(tmp_path: Path) -> None:
    proofs(tmp_path, model="").keep(NATIVE, FINE)

    assert list(tmp_path.iterdir()) == []


def test_without_a_directory_nothing_is_kept_nor_awaited() -> None:
    def never() -> str:
        raise AssertionError

    nowhere = KeptProofs("", "", never)
    nowhere.keep(NATIVE, FINE)

    assert nowhere.find(NATIVE) is None


def test_directory_that_cannot_be_used_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    unusable = proofs(tmp_path / "file")

    unusable.keep(NATIVE, FAULT)

    assert unusable.find(NATIVE) is None


def test_damaged_proof_is_replaced(tmp_path: Path) -> None:
    proofs(tmp_path).keep(NATIVE, FINE)
    [file] = tmp_path.iterdir()
    file.write_text('{"differ')

    assert proofs(tmp_path).find(NATIVE) is None
    proofs(tmp_path).keep(NATIVE, FINER)
    assert proofs(tmp_path).find(NATIVE) == FINER


def test_a_fault_wins_among_writers_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for proof in [FINE, FINER, FINE, FAULT] * 25:
            pool.submit(proofs(tmp_path).keep, NATIVE, proof)

    assert proofs(tmp_path).find(NATIVE) == FAULT
    [file] = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


def make_and_hang(directory: Path, told: Connection) -> None:
    with draft(directory) as made:
        (made / "records.npy").touch()
        told.send(made)
        told.recv()


def test_the_folder_of_a_process_that_makes_a_model_stays_until_it_ends_or_is_killed(tmp_path: Path) -> None:
    mine, its = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=make_and_hang, args=(tmp_path, its))
    process.start()
    try:
        assert mine.poll(60)
        left = mine.recv()
        remove_left(tmp_path)
        with draft(tmp_path) as own:
            assert {own, left} == {*tmp_path.iterdir()}
        assert [*tmp_path.iterdir()] == [left]
    finally:
        process.kill()
        process.join()
    remove_left(tmp_path)

    assert not [*tmp_path.iterdir()]


def test_a_store_that_does_not_exist_has_nothing_left(tmp_path: Path) -> None:
    remove_left(tmp_path / "store")

    assert not [*tmp_path.iterdir()]


def test_without_conditions_nothing_is_forgotten(tmp_path: Path) -> None:
    proofs(tmp_path).keep(NATIVE, FINE)

    with pytest.raises(ValueError, match="no conditions"):
        forget(tmp_path, "")

    assert proofs(tmp_path).find(NATIVE) == FINE


def key(backend: str = "onnx", **settings: Any) -> str:
    return key_of(of_proof(Config.model_validate(settings), backend))


def test_settings_that_decide_about_a_proof_are_conditions() -> None:
    assert key(batching="rows", batchSize=8, threadPerModel=2) == key()
    others = [
        key(accuracyTolerance=0.1),
        key(calibrationData="/data"),
        key(modelInputs="x float32 [N,3]"),
        key(engine="openvino"),
        key("torch"),
        key("python"),
    ]
    assert len({key(), *others}) == len(others) + 1


def test_every_package_counts_for_a_python_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key("python"), key("onnx"), key("torch", allowPickle=True)
    (tmp_path / "mine-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert key("python") != before[0]
    assert key("onnx") == before[1]
    assert key("torch", allowPickle=True) != before[2]


@pytest.mark.parametrize(
    ("name", "counts"), [("nncf", False), ("numpy", False), ("onnxruntime", True), ("openvino", True)]
)
def test_versions_that_compute_are_conditions_and_versions_that_make_a_model_are_not(
    name: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(asked: str) -> str:
        return "99.0" if asked == name else version(asked)

    before = key(precision="int8"), key("python", precision="int8")
    monkeypatch.setattr(module, "version", changed)

    assert (key(precision="int8") != before[0]) is counts
    assert name == "onnxruntime" or key("python", precision="int8") != before[1]


def test_another_version_is_another_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(module, "__version__", "99.0")

    assert key() != before
