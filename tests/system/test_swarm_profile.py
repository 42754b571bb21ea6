"""`swarm profile`: a real node, its Redis and a frontend are measured, and leave nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.swarm.plan.profile import Profile
from support.wait import wait_until

MODEL = """
class Model:
    inputs = outputs = {"x": "float32 [N,2000]"}

    def predict(self, batch):
        return batch
"""


COMMAND = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "swarm", "profile", "--model-path"]


def environment_in(place: Path) -> dict[str, str]:
    return os.environ | {"CLUSTER_SERVING_BATCH_SIZE": "2", "TMPDIR": str(place)}


def test_a_profile_has_the_costs_of_every_process(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.py").write_text(MODEL)

    done = subprocess.run(
        [*COMMAND, str(model), "--seconds", "3"],
        cwd=tmp_path,
        env=environment_in(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == ExitCode.OK, done.stderr
    factor, *_, wrote = done.stdout.splitlines()
    assert re.fullmatch(r"A full machine takes [1-9]\d*\.\d\d times the CPU time of its processes\.", factor)
    assert wrote == "Wrote profile.json."
    found = Profile.read(tmp_path / "profile.json")
    assert (found.model, found.batch, found.threads) == (str(model), 2, 1)
    assert 8000 < found.payload_bytes < 8500
    assert 8000 < found.memory_bytes < 20_000
    assert 7000 < found.result_bytes < 9500  # a record on its way to the node takes 8,200 more
    assert found.worker_bytes > 1_000_000
    costs = {kind: getattr(found, kind) for kind in ("redis", "reader", "worker", "writer", "caller", "frontend")}
    assert all(cost.seconds(1) > 0 for cost in costs.values()), costs
    wait_until(lambda: not left_by(tmp_path), "all processes of the measurement end")


@pytest.mark.parametrize("step", ["home/profile/lock", "home/profile/serving"])
def test_a_measurement_that_is_told_to_end_leaves_nothing(step: str, tmp_path: Path) -> None:
    """While the node starts, whose model never loads, and while the node serves."""
    model, place = tmp_path / "model", tmp_path / "place"
    model.mkdir()
    place.mkdir()
    (model / "model.py").write_text(MODEL if "serving" in step else "import time\ntime.sleep(600)\n")
    with subprocess.Popen(
        [*COMMAND, str(model)], cwd=tmp_path, env=environment_in(place), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: list(place.glob(f"*/{step}")), "the node is there")
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()

    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "Traceback" not in errors
    assert not left_by(place)
    assert not list(place.iterdir())


def left_by(directory: Path) -> list[psutil.Process]:
    """Return the processes that have the directory for their temporary files."""
    every = psutil.process_iter(["environ"])
    return [process for process in every if (process.info["environ"] or {}).get("TMPDIR") == str(directory)]
