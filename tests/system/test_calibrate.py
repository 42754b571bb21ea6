"""A model in INT8 that is made of live records, served, and taken back, while calls go on."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import TensorProto, helper, numpy_helper

from cluster_serving.client import InputQueue
from cluster_serving.node.models.base import Array
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

pytestmark = pytest.mark.skipif(find_spec("nncf") is None, reason="nncf is not installed")
JOB, CLASSES, SIZE = "calibrated", 4, 8
PROTOTYPES = 10 * np.eye(CLASSES, SIZE, dtype=np.float32)


def save(path: Path) -> Path:
    """A classifier by the nearest prototype."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weights"], ["y"])],
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", SIZE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(PROTOTYPES.T.copy(), "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


class Calls:
    """One call after another, each with an answer that is known. Every record holds the mark."""

    def __init__(self, port: int) -> None:
        self.mark = np.array([0.123456], np.float32)
        self.answered = 0
        self.wrong: list[object] = []
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Calls":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _record(self, number: int) -> Array:
        record: Array = PROTOTYPES[number].copy()
        record[-1:] = self.mark
        return record

    def _run(self) -> None:
        with InputQueue(port=self._port, name=JOB) as queue:
            for number in cycle(range(CLASSES)):
                if self._stop.wait(0.002):
                    return
                try:
                    answer = queue.predict({"x": self._record(number)}, timeout=60)
                    self.answered += 1
                    if int(np.argmax(answer)) != number:
                        self.wrong.append(answer)
                except Exception as error:
                    self.wrong.append(error)


@pytest.fixture(scope="module")
def node(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    home = tmp_path_factory.mktemp("calibrated")
    save(home / "model.onnx")
    with running_node(home / "node", redis_server, jobName=JOB, **shared_settings(home)) as node:
        yield node


def shared_settings(home: Path) -> dict[str, object]:
    return {"modelPath": str(home / "model.onnx"), "accuracyAgreement": 0.9, "modelCache": str(home / "cache")}


def state_of(node: RunningNode) -> Path:
    return node.config_path.parent / "state"


def serves(node: RunningNode) -> tuple[object, object]:
    beat = node.heartbeat()
    return beat.get("engine"), beat.get("precision")


def command(node: RunningNode, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in the home of the node."""
    with under_way(node, *words) as process:
        output, errors = process.communicate(timeout=280)
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


@contextmanager
def under_way(node: RunningNode, *words: str) -> Generator[subprocess.Popen[str]]:
    """A command in the home of the node, for a block."""
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(state_of(node))}
    program = [sys.executable, "-P", "-m", "cluster_serving.node.cli", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def calibration_of(node: RunningNode) -> Path:
    return state_of(node) / JOB / "calibration"


def files_with(mark: Array, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and mark.tobytes() in path.read_bytes()]


def test_int8_of_live_records_comes_and_goes_without_a_failed_call(
    node: RunningNode, redis_server: PrivateRedis, tmp_path: Path
) -> None:
    home = node.config_path.parent.parent
    with Calls(redis_server.port) as calls:
        applied = command(
            node, "calibrate", JOB, "--records=80", "--precision=int8", "--priority=normal", "--apply", "--json"
        )
        assert applied.returncode == 0, applied.stderr
        wait_until(lambda: serves(node) == ("openvino", "int8"), "the heartbeat tells of INT8")
        config = command(node, "config", "-c", str(node.config_path)).stdout
        kept = files_with(calls.mark, home)
        settings = {**shared_settings(home), "precision": "int8", "calibrationData": str(kept[0])}
        with running_node(tmp_path, redis_server, **settings) as other:
            served_by_other = serves(other)
        before = calls.answered
        wait_until(lambda: calls.answered > before + 20, "INT8 answers")
        back = command(node, "calibrate", JOB, "--rollback")
        assert back.returncode == 0, back.stderr
        wait_until(lambda: serves(node) == ("native", "f32"), "the heartbeat tells of float32")
        left = files_with(calls.mark, home)

    told = json.loads(applied.stdout)
    int8 = next(one for one in told["candidates"] if one["precision"] == "int8")
    assert (told["records"], told["applied"], told["best"]["precision"]) == (80, True, "int8")
    assert told["seen"] >= 80
    assert (int8["refused"], int8["records"], int8["at_least"] >= 0.9) == ("", 40, True)
    assert all(one["ms"] > 0 for one in told["candidates"])
    assert [path.name for path in kept] == ["records.npz"]
    assert "Tried: openvino int8: " in config
    assert "40 of 40 records agree" in config
    assert left == []
    assert served_by_other == ("openvino", "int8")
    assert "quantising to INT8" in (state_of(node) / JOB / "calibrate.log").read_text()
    assert "quantising to INT8" not in other.log
    assert calls.wrong == []


APPLY = ("calibrate", JOB, "--records=80", "--precision=int8", "--priority=normal", "--apply")


def test_a_calibration_that_is_told_to_end_keeps_no_records(node: RunningNode, redis_server: PrivateRedis) -> None:
    with Calls(redis_server.port) as calls, under_way(node, *APPLY) as calibrate:
        log = state_of(node) / JOB / "calibrate.log"
        log.unlink(missing_ok=True)
        wait_until(lambda: log.exists() and "quantising to INT8" in log.read_text(), "the model is quantised")
        calibrate.send_signal(signal.SIGTERM)
        calibrate.communicate(timeout=60)

    assert calibrate.returncode == 128 + signal.SIGTERM
    assert files_with(calls.mark, node.config_path.parent.parent) == []


def test_a_restart_while_the_candidates_are_tried_is_not_undone(node: RunningNode, redis_server: PrivateRedis) -> None:
    with Calls(redis_server.port), under_way(node, *APPLY) as calibrate:
        wait_until(lambda: list(calibration_of(node).glob("*/records.npz")), "the candidates are tried")
        calibrate.send_signal(signal.SIGSTOP)
        restarted = command(node, "restart", JOB, "--set", "batchSize=3")
        calibrate.send_signal(signal.SIGCONT)
        _, errors = calibrate.communicate(timeout=280)

    assert restarted.returncode == 0, restarted.stderr
    assert f"job {JOB} was changed while it was tried, and nothing is applied: calibrate again" in errors
    assert node.heartbeat()["batch_size"] == 3
    assert not list(calibration_of(node).glob("*"))


def test_records_stay_while_the_node_goes_on_with_an_interrupted_apply(
    node: RunningNode, redis_server: PrivateRedis
) -> None:
    supervisor = psutil.Process(node.process.pid)

    def hears(calibrate: subprocess.Popen[str]) -> bool:
        opened = [fd.resolve() for fd in Path(f"/proc/{supervisor.pid}/fd").iterdir() if fd.is_fifo()]
        return state_of(node) / JOB / f"change.{calibrate.pid}" in opened

    with Calls(redis_server.port) as calls, under_way(node, *APPLY) as calibrate:
        wait_until(lambda: hears(calibrate), "the node has the request")
        supervisor.suspend()
        calibrate.send_signal(signal.SIGINT)
        _, errors = calibrate.communicate(timeout=60)
        refused = command(node, "calibrate", JOB, "--rollback")
        kept = list(calibration_of(node).glob("*/records.npz"))
        supervisor.resume()
        wait_until(lambda: serves(node) == ("openvino", "int8"), "the heartbeat tells of INT8")
        wait_until(lambda: not hears(calibrate), "the change has ended")
        back = command(node, "calibrate", JOB, "--rollback")

    assert "The node goes on with the change" in errors
    assert f"a change of job {JOB} is under way; try again when it has ended" in refused.stderr
    assert len(kept) == 1
    assert back.returncode == 0, back.stderr
    assert not list(calibration_of(node).glob("*"))
    assert calls.wrong == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--records=20",), "--records is 20, and to prove accuracyAgreement, 90 %, takes 58"),
        (("--for=1s",), r"0 records came in \d+ s, and to prove accuracyAgreement, 90 %, takes 58"),
        (("--rollback",), f"job {JOB} serves nothing that calibrate --apply has set"),
        (("--rollback", "--apply"), "--rollback goes back to what was served before: give it alone."),
    ],
)
def test_a_calibration_that_cannot_be_is_told_in_a_sentence(
    node: RunningNode, words: tuple[str, ...], reason: str
) -> None:
    done = command(node, "calibrate", JOB, *words)

    assert done.returncode != 0
    assert re.search(reason, done.stderr)
    assert not list(calibration_of(node).glob("*"))
