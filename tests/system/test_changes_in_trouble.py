"""Changes of a running node that meet trouble: the node goes on serving, and whoever waits is told what is so."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import yaml

from cluster_serving.client import InputQueue, keys
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "trouble"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a directory to start the node in, and return its path; a test may delete the directory."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


@pytest.fixture
def node(own_redis: PrivateRedis, tmp_path: Path, home: Path) -> Iterator[RunningNode]:
    del home
    settings = {
        "modelPath": str(MODELS / "affine.py"),
        "jobName": JOB,
        "runTimeout": 1,
        "lease": 2,
        "redisTimeout": 500,
    }
    with running_node(tmp_path / "node", own_redis, **settings) as node:
        yield node


def slow_model(directory: Path) -> str:
    path = directory / "slow.py"
    path.write_text("import time; time.sleep(60)")
    return str(path)


def begin_restart(node: RunningNode, *words: str) -> subprocess.Popen[str]:
    """The command, under way."""
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(node.config_path.parent / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "restart", JOB, *words]
    directory = node.config_path.parent
    return subprocess.Popen(
        command, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def state_directory(node: RunningNode) -> Path:
    (directory,) = (
        path for path in (node.config_path.parent / "state").iterdir() if path.is_dir() and path.name != ".proofs"
    )
    return directory


def answers(server: PrivateRedis) -> bool:
    with InputQueue(port=server.port, name=JOB) as queue:
        return bool(queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4)


def test_a_second_restart_is_refused_and_takes_nothing_from_the_first(node: RunningNode) -> None:
    node.process.send_signal(signal.SIGSTOP)  # it has not read the first request yet
    first = begin_restart(node, "--set", "batchSize=7", "--timeout", "100")
    wait_until(lambda: (state_directory(node) / "change.json").exists(), "the first has asked")

    second, _ = begin_restart(node, "--set", "batchSize=8").communicate(timeout=120)
    node.process.send_signal(signal.SIGCONT)
    told, _ = first.communicate(timeout=120)

    assert "another restart of job trouble is under way" in second
    assert first.returncode == 0, told
    wait_until(lambda: node.heartbeat().get("batch_size") == 7, "it has changed to what the first asked for")


def test_a_node_whose_directory_was_deleted_can_be_changed(node: RunningNode, home: Path) -> None:
    home.rmdir()

    restart = begin_restart(node, "--set", "batchSize=7")
    told, _ = restart.communicate(timeout=120)

    assert restart.returncode == 0, told


def test_whoever_waits_is_not_told_that_a_stopping_node_goes_on(node: RunningNode, tmp_path: Path) -> None:
    restart = begin_restart(node, "--model-path", slow_model(tmp_path))
    wait_until(lambda: len(node.children("worker")) == 2, "the new model is being loaded")

    assert node.stop() == 0
    told, _ = restart.communicate(timeout=120)

    assert told.splitlines()[-1] == "the node was told to stop"
    assert restart.returncode == 1


def test_what_a_killed_restart_has_left_is_removed_by_the_next(node: RunningNode, tmp_path: Path) -> None:
    killed = begin_restart(node, "--model-path", slow_model(tmp_path), "--timeout", "3")
    wait_until(
        lambda: len(node.children("worker")) == 2 or "not ready after 3 s" in node.log, "the new model is being loaded"
    )
    killed.kill()
    killed.communicate()
    wait_until(lambda: "not ready after 3 s" in node.log, "the change is given up")

    told, _ = begin_restart(node, "--set", "batchSize=7").communicate(timeout=120)

    assert "is ready" in told
    assert sorted(path.name for path in state_directory(node).iterdir()) == ["lock", "node.json", "node_id", "serving"]


def test_a_model_that_has_forked_is_heard(node: RunningNode, own_redis: PrivateRedis, tmp_path: Path) -> None:
    """The process that it forked keeps the pipe open on which the worker says that it is ready."""
    model = tmp_path / "forks.py"
    fork = "import os, time\nif os.fork() == 0:\n    time.sleep(90)\n    os._exit(0)\n"
    model.write_text(fork + (MODELS / "affine.py").read_text())

    restart = begin_restart(node, "--model-path", str(model), "--timeout", "60")
    told, _ = restart.communicate(timeout=120)

    assert restart.returncode == 0, told
    assert answers(own_redis)


def test_a_node_without_descriptors_for_a_change_goes_on(node: RunningNode, own_redis: PrivateRedis) -> None:
    process = psutil.Process(node.process.pid)
    _, hard = process.rlimit(psutil.RLIMIT_NOFILE)

    def change_with(spare: int) -> None:
        since, before = len(node.log), process.num_fds()
        process.rlimit(psutil.RLIMIT_NOFILE, (before + spare, hard))
        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "no change; the old model goes on serving" in node.log[since:], "it says so")
        assert "Too many open files" in node.log[since:]
        assert answers(own_redis)
        wait_until(lambda: process.num_fds() <= before, "it has given back what it took")
        process.rlimit(psutil.RLIMIT_NOFILE, (hard, hard))

    for spare in (1, 6, 9, 12):
        change_with(spare)
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.count("event=serving ") == 2, "the next change succeeds")


def test_a_request_that_cannot_be_written_is_one_sentence(node: RunningNode) -> None:
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(node.config_path.parent / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "restart", JOB]
    done = subprocess.run(
        command,
        # Coverage would write a file, too.
        env={name: value for name, value in environment.items() if not name.startswith("COVERAGE")},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )

    assert done.returncode == 1
    assert done.stderr == f"{state_directory(node) / 'change.json'}: File too large\n"
    assert sorted(path.name for path in state_directory(node).iterdir()) == ["lock", "node.json", "node_id", "serving"]


def test_a_node_whose_log_cannot_be_written_goes_on(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """A full disk, and a reader of the log that has gone."""
    config = tmp_path / "config.yaml"
    settings = {
        "modelPath": str(MODELS / "affine.py"),
        "jobName": JOB,
        "redisUrl": own_redis.url,
        "modelParallelism": 1,
    }
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "start", "--foreground", "-c", str(config)]
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state")}
    with Path("/dev/full").open("w") as full:
        node = subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        with own_redis.client() as client:
            wait_until(lambda: client.exists(keys.limits_key(JOB)), "the node has been there")
        assert answers(own_redis)
    finally:
        node.terminate()
        _, said = node.communicate(timeout=120)

    assert (node.returncode, said) == (0, "")


@pytest.mark.timeout(1600)
def test_a_child_that_never_gets_ready_is_replaced(held: Path, node: RunningNode, own_redis: PrivateRedis) -> None:
    def is_killed(kind: str) -> bool:
        return any(f"child={kind}" in line and "not ready after" in line for line in node.log.splitlines())

    for kind in ("worker", "writer", "reader"):
        (held / kind).touch()
        node.children(kind)[0].kill()
    for kind in ("worker", "writer", "reader"):
        wait_until(partial(is_killed, kind), "it is killed", 500)
        (held / kind).unlink()

    assert answers(own_redis)


def test_a_node_whose_reader_is_stopped_is_not_ready(own_redis: PrivateRedis, tmp_path: Path) -> None:
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "lease": 60}
    with running_node(tmp_path / "node", own_redis, **settings) as node:
        (reader,) = node.children("reader")
        reader.suspend()

        wait_until(lambda: node.heartbeat().get("state") == "unready", "it says so")

        reader.resume()
        wait_until(lambda: node.heartbeat().get("state") == "ready", "it is ready again")


def test_a_stop_does_not_wait_for_a_fingerprint(node: RunningNode, tmp_path: Path) -> None:
    """Of a model of many gigabytes."""
    model = tmp_path / "large.py"
    model.write_text("# reads weights.bin\n" + (MODELS / "affine.py").read_text())
    with (tmp_path / "weights.bin").open("wb") as weights:
        weights.truncate(1 << 40)  # sparse
    restart = begin_restart(node, "--model-path", str(model))
    wait_until(lambda: len(node.children("worker")) == 2, "the new worker has begun")

    assert node.stop() == 0
    assert "the node was told to stop" in restart.communicate(timeout=120)[0]
