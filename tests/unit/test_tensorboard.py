"""Scalars for TensorBoard, read back by TensorBoard's own reader."""

import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog

from cluster_serving.client.extras import install_command
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.installed import NotInstalled
from cluster_serving.client.wire.load import Load
from cluster_serving.node.config.loading import load_config
from cluster_serving.node.supervisor.load_line import LoadLine
from cluster_serving.node.supervisor.tensorboard import Scalars, check_tensorboard
from support.heartbeats import described


@pytest.fixture
def scalars_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that reads the scalars of a run: tag to steps and values."""
    pytest.importorskip("tensorboard")
    # TensorBoard's switch against the import of TensorFlow, which takes 5 s.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    accumulator = import_module("tensorboard.backend.event_processing.event_accumulator").EventAccumulator

    def read(run: Path) -> dict[str, list[tuple[int, float]]]:
        found = accumulator(str(run)).Reload()
        return {tag: [(point.step, point.value) for point in found.Scalars(tag)] for tag in found.Tags()["scalars"]}

    return read


@pytest.fixture
def nobody() -> Iterator[None]:
    """The rights of a user without any."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    yield
    os.seteuid(own)


def test_tensorboard_reads_a_point_for_each_interval(tmp_path: Path, scalars_of: Any) -> None:
    scalars = Scalars(str(tmp_path / "new" / "runs"), "job-node")
    started_ms = round((time.time() - 100) * 1000)
    load = Load(records_s=12.5, p50_s=0.25, p99_s=0.5)
    for answered in (7, 9):
        beat = described(started_ms=started_ms, load=load, figures={"answered": answered, "failed": 1})
        LoadLine(1e-9, scalars).tell(beat, 0)
    scalars.close()
    (run,) = (tmp_path / "new" / "runs").iterdir()

    found = scalars_of(run)

    assert run.name.endswith("-job-node")
    assert {tag: [value for _, value in points] for tag, points in found.items()} == {
        "Serving Throughput": [12.5, 12.5],
        "Total Records Number": [8, 10],
        "Latency/p50 ms": [250, 250],
        "Latency/p99 ms": [500, 500],
    }
    assert found["Serving Throughput"][0][0] >= 100


def test_another_directory_is_another_run_and_the_same_one_goes_on(tmp_path: Path, scalars_of: Any) -> None:
    scalars = Scalars("", "node")
    for directory in ("a", "a", "b", ""):
        scalars.follow(str(tmp_path / directory) if directory else "")
        scalars.add(described(figures={"answered": 1, "failed": 0}), Load())
    runs = {name: [*(tmp_path / name).iterdir()] for name in ("a", "b")}

    assert [len(runs["a"]), len(runs["b"])] == [1, 1]
    assert [len(scalars_of(run)["Serving Throughput"]) for run in (*runs["a"], *runs["b"])] == [2, 1]


def test_a_full_disk_ends_the_scalars_and_not_the_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    scalars = Scalars(str(tmp_path), "node")
    (file,) = tmp_path.glob("*/events*")
    os.truncate(file, 0)
    descriptor = os.open("/dev/full", os.O_WRONLY)
    opened = scalars._file  # pyright: ignore[reportPrivateUsage]
    assert opened is not None
    os.dup2(descriptor, opened.fileno())
    os.close(descriptor)

    with structlog.testing.capture_logs() as told:
        for _ in range(2):
            scalars.add(described(figures={"answered": 1, "failed": 0}), Load())

    assert [line["event"] for line in told] == ["no more scalars for TensorBoard"]
    assert "No space left" in told[0]["reason"]


def test_a_start_says_which_command_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)

    check_tensorboard("")
    with pytest.raises(NotInstalled) as raised:
        check_tensorboard("runs")

    assert str(raised.value) == (
        "tensorboardDir is set, and TensorBoard is not installed (tensorboard is missing): "
        f"{install_command('tensorboard')}"
    )


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")

    check_tensorboard(str(tmp_path / "a" / "b"))
    with pytest.raises(ConfigError, match=rf"tensorboardDir is {tmp_path}/file/a, and {tmp_path}/file is no directory"):
        check_tensorboard(str(tmp_path / "file" / "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_is_not_the_users_is_named(nobody: None) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(ConfigError, match=r"tensorboardDir is /runs/a, and this user may not write to /$"):
        check_tensorboard("/runs/a")


def test_points_need_an_interval(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tensorboardDir is set, and logInterval is 0"):
        load_config(None, {}, {"tensorboardDir": "runs", "logInterval": "0"})
