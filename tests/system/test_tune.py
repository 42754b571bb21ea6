"""`cluster-serving tune`, as a user runs it, and the starts after it."""

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

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.job.directory import Job
from cluster_serving.node.models.detect import detect
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.topology.share import Share
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

CONFIG = {"modelPath": str(MODELS / "affine.py"), "jobName": "tuned", "modelParallelism": 1, "threadPerModel": 1}


class Tune:
    """A run of the command, with directories of its own for what it makes and keeps."""

    def __init__(self, home: Path, server: PrivateRedis, *arguments: str, **config: Any) -> None:
        self.place = home / "t"
        self.place.mkdir(parents=True)
        path = home / "tune.yaml"
        path.write_text(yaml.safe_dump(CONFIG | {"redisUrl": server.url} | config))
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "tune", "-c", str(path)]
        self.process = subprocess.Popen(
            [*command, "--seconds", "0.05", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(self.place), "CLUSTER_SERVING_HOME": str(home / "state")},
        )

    def ended(self) -> tuple[int, str, str]:
        """Its exit code, and what it printed to standard output and error."""
        with self.process:
            try:
                output, errors = self.process.communicate(timeout=120)
            finally:
                self.process.kill()
        return self.process.returncode, output, errors

    def left(self) -> list[str]:
        """Files and processes that belong to the run."""
        return [*map(str, self.place.iterdir()), *(" ".join(one.cmdline()) for one in self.processes())]

    def processes(self) -> list[psutil.Process]:
        """The command, its load, and the children of its lanes."""
        return [process for process in psutil.process_iter() if self._is_mine(process)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("TMPDIR") == str(self.place)
        except psutil.Error:
            return False


def keep(home: Path, choice: Choice) -> None:
    """Have a choice kept for this machine and CONFIG, as if it had been measured."""
    config = Config.model_validate(CONFIG)
    model = detect(config.model_path)
    store = Store(Job.of(config.job_name, {"CLUSTER_SERVING_HOME": str(home / "state")}).directory)
    store.keep(config, model.backend, fingerprint(model), Share().budget, choice, {})
    assert store.find(config, model, Share().budget) is not None


def shape_of(node: RunningNode) -> tuple[int, int, int]:
    beat = node.heartbeat()
    return beat["workers"], beat["threads"], beat["batch_size"]


def test_choice_is_kept_and_used_by_the_next_start(tmp_path: Path, redis_server: PrivateRedis) -> None:
    with redis_server.client() as client:
        before = set(client.scan_iter("*tuned*"))
    tune = Tune(tmp_path, redis_server, "--json")

    code, output, errors = tune.ended()

    assert code == 0, errors
    report = json.loads(output)
    chosen = report["chosen"]
    tried = {(row["workers"], row["threads"], row["batch"]) for row in report["tried"]}
    assert (1, 1, chosen["batch"]) in tried
    assert len(tried) > 1
    assert report["batching"] == "rows (checked: largest difference 0)"
    assert tune.left() == []
    with redis_server.client() as client:
        assert set(client.scan_iter("*tuned*")) <= before  # it had one of its own
    with running_node(tmp_path, redis_server, **CONFIG) as node:
        assert shape_of(node) == (1, 1, chosen["batch"])
        assert f"tuned: 1 worker x 1 thread, batch {chosen['batch']} (measured " in node.log


def test_a_result_that_cannot_be_kept_is_shown(tmp_path: Path, redis_server: PrivateRedis) -> None:
    kept_in = tmp_path / "state" / "tuned" / "tuned"
    kept_in.parent.mkdir(parents=True)
    kept_in.write_text("in the place of a folder")

    code, output, errors = Tune(tmp_path, redis_server, "--json").ended()

    assert code == ExitCode.FAILED
    assert errors.splitlines()[-1] == f"{kept_in}: File exists"
    assert json.loads(output)["chosen"]["workers"] == 1


MEAN_OF_BATCH = """
class Model:
    inputs = outputs = {"x": "float32 [N,2]"}

    def predict(self, batch):
        return {"x": batch["x"] - batch["x"].mean(axis=0)}
"""


def test_rows_that_run_one_by_one_have_one_batch_size(tmp_path: Path, redis_server: PrivateRedis) -> None:
    (tmp_path / "model.py").write_text(MEAN_OF_BATCH)

    code, output, errors = Tune(tmp_path, redis_server, "--json", modelPath=str(tmp_path / "model.py")).ended()

    assert code == 0, errors
    report = json.loads(output)
    assert report["batching"].startswith("none: row ")
    assert {row["batch"] for row in report["tried"]} == {32}
    assert len(list((tmp_path / "state" / ".proofs").iterdir())) == 1


@pytest.mark.parametrize(("config", "batch"), [({"batchSize": 3}, 3), ({"tuning": "off"}, 32)])
def test_what_is_set_wins_over_what_was_measured(
    config: dict[str, Any], batch: int, tmp_path: Path, redis_server: PrivateRedis
) -> None:
    keep(tmp_path, Choice(1, 1, 7, Runtime("native", "f32")))

    with running_node(tmp_path, redis_server, **CONFIG, **config) as node:
        assert shape_of(node) == (1, 1, batch)
        assert 'event="tuned' not in node.log


@pytest.mark.usefixtures("unmeasured")
def test_interrupted_tuning_leaves_nothing(tmp_path: Path, redis_server: PrivateRedis) -> None:
    tune = Tune(tmp_path, redis_server)
    # The command, the load, reader, writer and worker; Redis writes its title over its environment.
    wait_until(lambda: len(tune.processes()) >= 5 or tune.process.poll() is not None, "it measures")
    tune.process.send_signal(signal.SIGINT)

    ended, output, errors = tune.ended()

    assert ended == 130, output + errors
    assert "Traceback" not in errors
    assert tune.left() == []
    assert not (tmp_path / "state" / "tuned" / "tuned").exists()


@pytest.mark.parametrize(
    ("config", "code", "told"),
    [
        ({"modelPath": "broken.py"}, ExitCode.MODEL, "no cheese"),
        ({"modelPath": str(MODELS / "free.py")}, ExitCode.FAILED, "modelInputs"),
        ({"batchSize": 4}, ExitCode.FAILED, "there is nothing to choose"),
    ],
)
def test_what_cannot_be_tuned_is_told(
    config: dict[str, Any], code: ExitCode, told: str, tmp_path: Path, redis_server: PrivateRedis
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no cheese')")
    tune = Tune(tmp_path, redis_server, **config)

    ended, output, errors = tune.ended()

    assert (ended, output) == (code, "")
    assert told in errors
    assert "Traceback" not in errors
    assert tune.left() == []


def test_first_start_measures_if_asked_to_and_the_next_does_not(tmp_path: Path, redis_server: PrivateRedis) -> None:
    config = CONFIG | {"jobName": "at_start", "tuning": "start"}
    with running_node(tmp_path, redis_server, **config) as node:
        first = shape_of(node)
        length = len(node.log)
        assert "(measured " in node.log
        assert node.log.count("event=ready child=worker-0") > 1

    with running_node(tmp_path, redis_server, **config) as node:
        assert shape_of(node) == first
        assert "(measured " in node.log[length:]
        assert node.log[length:].count("event=ready child=worker-0") == 1


def test_job_that_runs_is_not_measured(tmp_path: Path, redis_server: PrivateRedis) -> None:
    with running_node(tmp_path, redis_server, **CONFIG):
        code, _, errors = Tune(tmp_path, redis_server).ended()

    assert code == ExitCode.ALREADY_RUNNING
    assert "stop it with" in errors
