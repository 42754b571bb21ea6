"""Real processes killed with real signals while records flow."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cluster_serving.client import InputQueue, OutputQueue, RecordFailed, keys
from support.models import MODELS, affine
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "faults"


@pytest.fixture(scope="module")
def shared(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    settings = {"modelPath": model, "jobName": JOB, "batchSize": 16, "modelParallelism": 2}
    settings["drainTimeout"] = 3600  # longer than any test waits for a stop
    with running_node(tmp_path_factory.mktemp("node"), server, **settings) as node:
        yield node


@pytest.fixture
def node(shared: RunningNode, server: PrivateRedis) -> RunningNode:
    """The node of all these tests, whole, and without results of others."""
    if shared.process.poll() is not None:
        shared.start()
    settled(shared, server)
    with OutputQueue(port=server.port, name=JOB) as output:
        output.dequeue()
    return shared


class Load:
    """Sends numbered records from a thread until told to stop; then every one must have its own right answer."""

    def __init__(self, server: PrivateRedis) -> None:
        self._server = server
        self.sent = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        wait_until(lambda: self.sent >= 200, "load flows")

    def _run(self) -> None:
        try:
            with InputQueue(port=self._server.port, name=JOB) as queue:
                while not self._stop.is_set():
                    first = self.sent
                    queue.enqueue_many(
                        (str(n), {"x": np.array([n, 0, 0, 0], np.float32)}) for n in range(first, first + 20)
                    )
                    self.sent += 20
                    time.sleep(0.04)  # the cores are for what is tested
        except BaseException as error:
            self._failure = error

    def finish(self) -> None:
        """Stop, wait for every answer, and check each."""
        self._stop.set()
        self._thread.join(120)
        assert self._failure is None
        right: set[str] = set()

        def all_there() -> bool:
            with OutputQueue(port=self._server.port, name=JOB) as output:
                for uri, answer in output.dequeue().items():
                    assert uri not in right, f"{uri} was answered twice"
                    assert answer != "NaN", f"{uri}: {getattr(answer, 'reason', answer)}"
                    assert answer[0][0] == 2 * int(uri) + 1
                    right.add(uri)
            return len(right) == self.sent

        wait_until(all_there, "every record is answered")


def settled(node: RunningNode, server: PrivateRedis) -> None:
    """Nothing is left of the load: not in the stream, not pending, not in the ring."""
    with server.client() as client:
        wait_until(lambda: client.xlen(JOB) == 0, "the stream is empty")
        wait_until(lambda: client.xpending(JOB, keys.GROUP)["pending"] == 0, "nothing is pending")
    wait_until(lambda: whole(node.heartbeat()), "every worker is back")


def whole(beat: dict[str, Any]) -> bool:
    """Return whether a heartbeat says that the node is ready and lacks no worker; an empty heartbeat does not."""
    return bool(beat) and beat["state"] == "ready" and beat["workers_alive"] == beat["workers"]


def kill_one(node: RunningNode, kind: str) -> None:
    """Kill a child, and wait until another has taken its place and records flow."""
    victim = wait_until(lambda: node.children(kind), f"a {kind} runs")[0]
    victim.kill()
    answered = node.heartbeat().get("answered", 0)
    wait_until(lambda: victim.pid not in [child.pid for child in node.children(kind)], "it is gone")
    wait_until(lambda: node.heartbeat().get("answered", 0) > answered + 100, "records flow again")


@pytest.mark.parametrize("kind", ["worker", "reader", "writer"])
def test_a_killed_process_is_replaced_and_every_record_answered_once(
    kind: str, node: RunningNode, server: PrivateRedis
) -> None:
    load = Load(server)

    for _ in range(3):
        kill_one(node, kind)
    load.finish()

    settled(node, server)
    assert node.heartbeat()["restarts"] >= 3
    assert "killed by SIGKILL" in node.log
    assert node.stop() == 0


def test_all_killed_at_once_are_replaced(node: RunningNode, server: PrivateRedis) -> None:
    load = Load(server)

    for kind in ("reader", "writer", "worker"):
        for child in node.children(kind):
            child.kill()
    load.finish()

    settled(node, server)


def test_a_redis_without_memory_is_emptied_by_a_new_reader(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client, InputQueue(port=server.port, name=JOB) as queue:
        (reader,) = node.children("reader")
        reader.suspend()
        queue.enqueue_many((str(n), {"x": np.array([n, 0, 0, 0], np.float32)}) for n in range(100))
        client.config_set("maxmemory", "1")
        reader.kill()

        wait_until(lambda: client.xlen(JOB) == 0, "every record is finished")

        client.config_set("maxmemory", "0")
        assert len(client.keys(keys.result_prefix(JOB) + "*")) == 100


def test_a_worker_that_becomes_ready_while_draining_starts_no_reader(node: RunningNode, server: PrivateRedis) -> None:
    load = Load(server)
    since = len(node.log)
    for worker in node.children("worker"):
        worker.kill()

    assert node.stop() == 0

    assert "event=ready child=reader" not in node.log[since:]
    node.start()
    load.finish()


def test_nothing_stays_after_a_stop_under_load(node: RunningNode, server: PrivateRedis) -> None:
    load = Load(server)
    children = [child for kind in ("worker", "reader", "writer") for child in node.children(kind)]

    assert node.stop() == 0

    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    with server.client() as client:
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0, "what was read has been answered"
        assert not client.keys(keys.node_key(JOB, "*"))
    node.start()
    load.finish()


def test_ctrl_c_drains_too(node: RunningNode, server: PrivateRedis) -> None:
    load = Load(server)
    assert node.stop(signal.SIGINT) == 0
    assert "Traceback" not in node.log
    node.start()
    load.finish()


def test_children_die_with_a_killed_supervisor_and_the_next_one_takes_over(
    node: RunningNode, server: PrivateRedis
) -> None:
    load = Load(server)
    children = [child for kind in ("worker", "reader", "writer") for child in node.children(kind)]

    node.process.kill()
    node.process.wait()

    wait_until(lambda: not any(child.is_running() for child in children), "the children are gone")
    node.start()
    load.finish()
    settled(node, server)


def test_redis_is_killed_and_comes_back(node: RunningNode, server: PrivateRedis) -> None:
    with InputQueue(port=server.port, name=JOB) as queue:
        assert queue.predict(np.zeros(4, np.float32), timeout=60)[1] == 0

    since = len(node.log)
    server.stop(signal.SIGKILL)
    wait_until(lambda: "cannot read from Redis" in node.log[since:], "the node has noticed")
    server.start()

    with InputQueue(port=server.port, name=JOB) as queue:
        assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
    assert node.process.poll() is None


def test_a_deleted_stream_is_made_again(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client:
        client.delete(JOB)
        with InputQueue(port=server.port, name=JOB) as queue:
            assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4


def test_ten_thousand_records_with_poison_among_them(node: RunningNode, server: PrivateRedis) -> None:
    poison = {2500, 7500}
    requests = ({"x": np.array([affine.RAISES if n in poison else n, 0, 0, 0], np.float32)} for n in range(10_000))
    with InputQueue(port=server.port, name=JOB) as queue:
        answers = list(queue.predict_many(requests, timeout=300))

    assert {n for n, answer in enumerate(answers) if isinstance(answer, RecordFailed)} == poison
    assert all(answer[0][0] == 2 * n + 1 for n, answer in enumerate(answers) if not isinstance(answer, RecordFailed))


def test_no_segment_and_no_descriptor_is_left_in_the_system(node: RunningNode, server: PrivateRedis) -> None:
    assert ring_holders()
    assert node.stop() == 0
    assert not ring_holders()


def ring_holders() -> list[int]:
    """Processes of this test run that hold a ring."""
    mine = [child.pid for child in psutil.Process().children(recursive=True)]
    found: list[int] = []
    for pid in mine:
        try:
            names = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
        except OSError:
            continue
        if any("cluster-serving-ring" in name for name in names):
            found.append(pid)
    return found
