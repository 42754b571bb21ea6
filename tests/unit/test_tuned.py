"""Choices that were measured: they are found again exactly where nothing that matters has changed."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from cluster_serving.node.config import conditions as module
from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.conditions import key_of
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store, conditions, is_open
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core

CHOICE = Choice(3, 2, 16, Runtime("openvino", "bf16"))
FOUR = Budget(tuple(Core(number, number) for number in range(4)))
CPUINFO = "processor : 0\nmodel name\t: A CPU\nflags\t\t: fpu avx2\n"


def kept(directory: Path, config: Config, budget: Budget = FOUR, choice: Choice = CHOICE) -> tuple[Store, Detected]:
    path = directory / "model.onnx"
    path.write_bytes(b"a model")
    model = Detected("onnx", str(path))
    store = Store(directory)
    store.keep(config, model.backend, fingerprint(model), budget, choice, {"tried": []})
    return store, model


def test_kept_choice_is_found(tmp_path: Path) -> None:
    store, model = kept(tmp_path, Config())

    found = store.find(Config(job_name="other", redis_url="elsewhere:1"), model, FOUR)

    assert found is not None
    assert found.choice == CHOICE
    assert len(found.day) == len("2026-11-22")


@pytest.mark.parametrize(
    "changed",
    [
        {"model_parallelism": 2},
        {"thread_per_model": 2},
        {"core_number_per_machine": 2},
        {"batch_size": 8},
        {"engine": "openvino"},
        {"precision": "bf16"},
        {"objective": "latency: 20"},
        {"post_processing": "topN(1)"},
        {"max_batch_delay_ms": 1.0},
        {"slot_bytes": 1 << 20},
        {"model_inputs": ("x",)},
        {"padding": {"x": 0.0}},
        {"output_dtype": "float16"},
        {"tuning": "off"},
    ],
)
def test_other_settings_find_nothing(tmp_path: Path, changed: dict[str, Any]) -> None:
    store, model = kept(tmp_path, Config())

    assert store.find(Config(**changed), model, FOUR) is None


@pytest.mark.parametrize(
    "budget",
    [
        Budget(FOUR.cores[:3]),
        Budget(FOUR.cores, 2.5),
        Budget(tuple(Core(number, number // 2) for number in range(4))),  # siblings
        Budget(tuple(Core(number, number, domain=number // 2) for number in range(4))),
    ],
)
def test_another_budget_finds_nothing(tmp_path: Path, budget: Budget) -> None:
    store, model = kept(tmp_path, Config())

    assert store.find(Config(), model, budget) is None


def test_as_many_other_cores_are_as_good(tmp_path: Path) -> None:
    store, model = kept(tmp_path, Config())

    assert store.find(Config(), model, Budget(tuple(Core(number, number) for number in range(4, 8)))) is not None


def test_another_model_finds_nothing(tmp_path: Path) -> None:
    store, model = kept(tmp_path, Config())

    model.definition.write_bytes(b"b model")

    assert store.find(Config(), model, FOUR) is None


def test_model_whose_fingerprint_is_known_is_not_read(tmp_path: Path) -> None:
    store, model = kept(tmp_path, Config())
    known = fingerprint(model)

    model.definition.unlink()

    assert store.find(Config(), model, FOUR, known) is not None
    assert store.find(Config(), model, FOUR) is None


def test_another_processor_or_version_is_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(CPUINFO)
    first = key_of(conditions(Config(), "onnx", FOUR, cpuinfo))

    cpuinfo.write_text(CPUINFO.replace("A CPU", "B CPU"))
    assert key_of(conditions(Config(), "onnx", FOUR, cpuinfo)) != first
    cpuinfo.write_text(CPUINFO.replace("avx2", "avx2 amx_bf16"))
    assert key_of(conditions(Config(), "onnx", FOUR, cpuinfo)) != first
    cpuinfo.write_text(CPUINFO)
    assert key_of(conditions(Config(), "onnx", FOUR, cpuinfo)) == first
    monkeypatch.setattr(module, "__version__", "99.0")
    assert key_of(conditions(Config(), "onnx", FOUR, cpuinfo)) != first


def test_runtimes_that_are_used_count_with_their_versions() -> None:
    assert {"numpy", "onnxruntime"} <= conditions(Config(), "onnx", FOUR)["versions"].keys()
    assert "openvino" not in conditions(Config(), "onnx", FOUR)["versions"]
    assert "openvino" in conditions(Config(engine="auto"), "onnx", FOUR)["versions"]


def test_broken_file_is_no_choice(tmp_path: Path) -> None:
    store, model = kept(tmp_path, Config())
    (file,) = (tmp_path / "tuned").iterdir()

    file.write_bytes(file.read_bytes()[:50])

    assert store.find(Config(), model, FOUR) is None


def test_int8_is_chosen_again_by_other_records_and_the_numbers_stay(tmp_path: Path) -> None:
    data = tmp_path / "rows.npy"
    data.write_bytes(b"records of March")
    config = Config(precision="auto", calibration_data=str(data))
    in_int8 = replace(CHOICE, runtime=Runtime("openvino", "int8"))
    store, model = kept(tmp_path, config, choice=in_int8)

    before = store.find(config, model, FOUR)
    data.write_bytes(b"records of June")
    after = store.find(config, model, FOUR)

    assert before is not None
    assert after is not None
    assert (before.choice, after.choice) == (in_int8, replace(CHOICE, runtime=Runtime("native", "auto")))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"model_parallelism": 1, "thread_per_model": 1}, True),
        ({"core_number_per_machine": 4}, True),
        ({"core_number_per_machine": 4, "batch_size": 8}, False),
        ({"model_parallelism": 1, "thread_per_model": 1, "batch_size": 8}, False),
        ({"model_parallelism": 1, "thread_per_model": 1, "batch_size": 8, "engine": "auto"}, True),
    ],
)
def test_whether_there_is_anything_to_choose(settings: dict[str, Any], expected: bool) -> None:
    assert is_open(Config(**settings), "onnx") is expected
