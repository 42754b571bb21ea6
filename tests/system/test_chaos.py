"""`cluster-serving chaos`, as a user runs it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cluster_serving.node.chaos.callers.crew import CALLERS
from support.models import MODELS
from support.wait import wait_until

SEED = 141  # the first faults set a clock, fail over, and give a far id


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory for what a run makes. The name is longer than the path of a Unix socket may be."""
    place = tmp_path / ("long" * 25)
    place.mkdir()
    return place


class Chaos:
    """A run of the command, with a directory of its own for what it makes."""

    def __init__(self, tmp_path: Path, place: Path, *arguments: str, **config: Any) -> None:
        self.place = place
        path = tmp_path / "config.yaml"
        path.write_text(
            yaml.safe_dump(
                {"modelPath": str(MODELS / "careless.py"), "slotBytes": "64k", "maxBatchDelayMs": 100, **config}
            )
        )
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "chaos", "-c", str(path), *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.place)},
        )

    def ended(self, timeout_s: float) -> tuple[int, str, str]:
        """Its exit code, and what it printed to standard output and error."""
        with self.process:
            try:
                output, errors = self.process.communicate(timeout=timeout_s)
            finally:
                self.process.kill()
        return self.process.returncode, output, errors

    def left(self) -> list[str]:
        """Processes and files that belong to the run."""
        return [*map(str, self.place.iterdir()), *(" ".join(process.cmdline()) for process in self.processes())]

    def processes(self) -> list[psutil.Process]:
        """Redis, the nodes and their children."""
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("CHAOS_POISON", "").startswith(str(self.place))
        except psutil.Error:
            return False


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.timeout(600)
def test_a_short_run_passes_and_leaves_nothing(tmp_path: Path, place: Path) -> None:
    chaos = Chaos(tmp_path, place, "--seconds", "12", "--seed", str(SEED), "--json")

    code, output, errors = chaos.ended(580)

    assert output, errors
    report = json.loads(output)
    assert [check for check in report["checks"] if check["failed"]] == []
    assert code == 0
    assert report["seed"] == SEED
    assert f"Seed {SEED}" in errors
    assert report["figures"]["faults"] == 4
    assert report["figures"]["accepted"] > 200
    assert set(report["callers"]) == set(CALLERS)
    assert all(caller["right"] for caller in report["callers"].values())
    assert report["notes"] == []
    assert chaos.left() == []


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing(number: int, code: int, tmp_path: Path, place: Path) -> None:
    chaos = Chaos(tmp_path, place, "--seed", "1")
    # Redis, two supervisors, and a worker of each at least.
    wait_until(lambda: len(chaos.processes()) >= 5 or chaos.process.poll() is not None, "two nodes start")
    chaos.process.send_signal(number)

    ended, output, errors = chaos.ended(60)

    assert ended == code, output + errors
    assert "Traceback" not in errors
    assert chaos.left() == []


def test_a_model_that_cannot_be_loaded_is_told_and_not_what_the_nodes_made_of_it(tmp_path: Path, place: Path) -> None:
    chaos = Chaos(tmp_path, place, "--seed", "1", modelPath=str(tmp_path / "nowhere"))

    code, _, errors = chaos.ended(60)

    assert code != 0
    assert "nowhere" in errors
    assert "Traceback" not in errors
    assert chaos.left() == []
