"""Promises that no other test breaks on purpose: duplicates, late and garbled records, runs a record may cost, names, signals."""

import math
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import InputQueue, OutputQueue, QueueFull, RecordFailed, keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.engines.proof import ROWS
from support.models import MODELS, tally
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

pytestmark = pytest.mark.redis
JOB = "promises"
BATCH = 16


def start(home: Path, server: PrivateRedis, model: str, **settings: Any) -> Any:
    """A node of the job, for a block."""
    return running_node(home, server, modelPath=str(MODELS / model), jobName=JOB, batchSize=BATCH, **settings)


def pair(first: float, second: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([first, second], np.float32)


def consumers(server: PrivateRedis) -> list[str]:
    with server.client() as client:
        return [str(consumer["name"].decode()) for consumer in client.xinfo_consumers(JOB, keys.GROUP)]


def test_a_record_that_a_client_enqueues_again_has_one_stored_result(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        start(tmp_path, own_redis, "slow.py") as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        OutputQueue(port=own_redis.port, name=JOB) as output,
        own_redis.client() as client,
    ):
        for _ in range(3):  # as after a `ConnectionLost`
            queue.enqueue("again", x=pair(0, 7))
        wait_until(lambda: client.xlen(JOB) == 0, "all are finished")

        assert client.keys(keys.result_prefix(JOB) + "*") == [f"{keys.result_prefix(JOB)}again".encode()]
        assert np.asarray(output.dequeue()["again"]).tolist() == [0, 7]
        assert output.dequeue() == {}
        assert node.heartbeat().get("dead") == 0


def test_a_record_that_is_late_before_a_node_takes_it_is_not_even_decoded(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with own_redis.client() as client:
        for uri, deadline in (("late", 1), ("in-time", 1 << 45)):
            client.xadd(JOB, {"uri": uri, "tensor:x": b"no tensor", "deadline": deadline})

    with (
        start(tmp_path, own_redis, "slow.py") as node,
        own_redis.client() as client,
        OutputQueue(port=own_redis.port, name=JOB) as output,
    ):
        wait_until(lambda: client.xlen(JOB) == 0, "both are finished")
        found: dict[str, Any] = output.dequeue()

        assert {uri: answer.code for uri, answer in found.items()} == {
            "late": ErrorCode.DEADLINE_EXCEEDED,
            "in-time": ErrorCode.INVALID_INPUT,
        }
        wait_until(lambda: node.heartbeat().get("expired") == 1, "the heartbeat tells")
        assert node.heartbeat()["rows"] == 0


def test_what_one_record_may_cost_its_neighbours(
    own_redis: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record at fault, and each record of its batch, runs at most log2(batch) + 1 times more."""
    runs = tmp_path / "runs"
    runs.touch()
    monkeypatch.setenv(tally.TALLY, str(runs))
    harm = {100: tally.RAISES, 300: tally.KILLS}

    with (
        start(tmp_path, own_redis, "tally.py"),
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        answers = list(queue.predict_many(({"x": pair(harm.get(n, 0), n)} for n in range(1, 401)), timeout=300))

    failed = {n: answer.code for n, answer in enumerate(answers, 1) if isinstance(answer, RecordFailed)}
    assert failed == {100: "InferenceFailed", 300: "WorkerDied"}
    times = Counter(int(row) for line in runs.read_text().splitlines() for row in line.split())
    del times[0]  # of every worker's warm-up
    assert set(times) == set(range(1, 401))
    assert max(times.values()) - 1 <= math.log2(BATCH) + 1
    proven = 2 * ROWS  # of the first batch of each worker, run alone too
    assert sum(1 for count in times.values() if count > 1) <= len(harm) * BATCH + proven


def test_a_node_reads_under_one_name_and_takes_it_along(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with start(tmp_path, own_redis, "slow.py") as node:
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            queue.predict(pair(0, 3), timeout=60)
            first = consumers(own_redis)
            node.process.kill()
            node.process.wait()
            node.start()
            queue.predict(pair(0, 3), timeout=60)

        assert len(first) == 1
        assert consumers(own_redis) == first
        assert node.stop() == 0

    assert consumers(own_redis) == []


def test_a_second_signal_ends_a_node_at_once(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """The record that the node held is not lost, but left for the next node."""
    with (
        start(tmp_path, own_redis, "slow.py", drainTimeout=300) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        own_redis.client() as client,
    ):
        queue.enqueue("long", x=pair(300, 0))
        wait_until(lambda: client.xpending(JOB, keys.GROUP)["pending"] == 1, "it is held")
        children = [child for kind in ("reader", "writer", "worker") for child in node.children(kind)]
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: node.heartbeat().get("state") == "draining", "it drains")

        assert node.stop(signal.SIGTERM) == 1

        wait_until(lambda: not any(child.is_running() for child in children), "its children are gone")
        assert client.xpending(JOB, keys.GROUP)["pending"] == 1
        assert client.xlen(JOB) == 1


def test_a_stopping_node_reads_no_more_and_answers_what_it_has_read(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        start(tmp_path, own_redis, "slow.py", drainTimeout=60) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        OutputQueue(port=own_redis.port, name=JOB) as output,
        own_redis.client() as client,
    ):
        queue.enqueue("held", x=pair(3, 0))
        wait_until(lambda: client.xpending(JOB, keys.GROUP)["pending"] == 1, "it is held")
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not node.children("reader") or _drains(node), "it drains")
        wait_until(lambda: not client.info("clients")["blocked_clients"], "it reads no more")

        queue.enqueue("later", x=pair(0, 0))

        assert node.process.wait(120) == 0
        assert np.asarray(output.query("held")).tolist() == [3, 0]
        assert client.xlen(JOB) == 1, "the other one waits for another node"
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0


def _drains(node: RunningNode) -> bool:
    return bool(node.heartbeat().get("state") == "draining")


def test_many_clients_at_once_never_exceed_the_limit(own_redis: PrivateRedis) -> None:
    limit = 250
    accepted: list[int] = []
    why: set[str] = set()
    with own_redis.client() as client:
        client.hset(keys.limits_key(JOB), "maxQueueLength", limit)

    def fill(me: int) -> None:
        with InputQueue(port=own_redis.port, name=JOB, patience_s=0) as queue:
            try:
                accepted.append(queue.enqueue_many((f"{me}-{n}", {"x": pair(0, n)}) for n in range(100)))
            except QueueFull as full:
                accepted.append(full.accepted)
                why.add(str(full))

    threads = [threading.Thread(target=fill, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with own_redis.client() as client:
        assert (len(accepted), sum(accepted), client.xlen(JOB)) == (8, limit, limit)
    original = "Redis queue is full, please wait for inference or delete the unprocessed records."
    assert why == {f"{original} (the stream {JOB} holds maxQueueLength records)"}
