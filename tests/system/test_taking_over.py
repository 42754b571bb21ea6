"""Fate of records whose node died, stopped or was slow: another node takes them over, and no record is answered twice."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from cluster_serving.client import InputQueue, OutputQueue, keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.protocol.results import Failed
from cluster_serving.client.wire.dead_letter import DeadLetter, decode_letter
from cluster_serving.client.wire.values import encode_record
from support.models import MODELS, affine
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "over"
LEASE_S = 6


@pytest.fixture(scope="module")
def nodes(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningNode, RunningNode]]:
    home = tmp_path_factory.mktemp("pair")
    with start(home / "a", server, "slow.py") as one, start(home / "b", server, "slow.py") as other:
        yield one, other


@pytest.fixture
def pair(
    nodes: tuple[RunningNode, RunningNode], server: PrivateRedis
) -> Iterator[tuple[RunningNode, RunningNode, InputQueue]]:
    """Two nodes of a slow model, both at rest, and a client. A test that ends one starts it again."""
    for node in nodes:
        node.settle()
    with InputQueue(port=server.port, name=JOB) as queue:
        yield *nodes, queue


def start(home: Path, server: PrivateRedis, model: str = "affine.py", **settings: Any) -> Any:
    """A node of the job, for a block."""
    defaults = {"modelPath": str(MODELS / model), "jobName": JOB, "batchSize": 8, "lease": LEASE_S}
    return running_node(home, server, **{**defaults, **settings})


def answers(server: PrivateRedis, count: int) -> dict[str, Any]:
    """So many results; none may come twice."""
    found: dict[str, Any] = {}

    def all_there() -> bool:
        with OutputQueue(port=server.port, name=JOB) as output:
            taken = output.dequeue()
        assert not found.keys() & taken.keys()
        found.update(taken)
        return len(found) == count

    wait_until(all_there, f"{count} results are there")
    return found


def dead_letters(server: PrivateRedis) -> list[DeadLetter]:
    """All of the job."""
    with server.client() as client:
        entries = client.xrange(keys.dead_key(JOB))
    return [decode_letter(entry_id, [part for pair in fields.items() for part in pair]) for entry_id, fields in entries]


def hold(server: PrivateRedis, **deliveries: int) -> dict[str, bytes]:
    """Records by uri that were delivered so often, each time to a node that died; the ids of their entries."""
    ids: dict[str, bytes] = {}
    with server.client() as client:
        client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
        for uri, times in deliveries.items():
            fields = encode_record(uri, {"x": np.ones(4, np.float32)})
            ids[uri] = client.xadd(JOB, dict(zip(fields[::2], fields[1::2], strict=True)))
            client.xreadgroup(keys.GROUP, "ghost", {JOB: ">"})
            for _ in range(times - 1):
                client.xclaim(JOB, keys.GROUP, "ghost", 0, [ids[uri]])
    return ids


def silence_reader(node: RunningNode, server: PrivateRedis) -> psutil.Process:
    """Stop the reader of one of two nodes, and wait until the read that it has sent has come back empty."""
    (reader,) = node.children("reader")
    reader.suspend()
    own = {"{}:{}".format(*each.laddr) for each in reader.net_connections("tcp")}
    with server.client() as client:
        wait_until(
            lambda: not any(each["addr"] in own and "b" in each["flags"] for each in client.client_list()),
            "its read has come back",
        )
    return reader


def processes(node: RunningNode) -> list[int]:
    """All of a node, the supervisor last."""
    children = [child.pid for kind in ("reader", "writer", "worker") for child in node.children(kind)]
    return [*children, node.process.pid]


def test_what_a_dead_node_held_is_answered_after_its_lease(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Suspects run alone, and what was delivered too often is given up."""
    times = (
        {"once": 1, "twice": 2, "often": 4} | {f"new-{n}": 1 for n in range(8)} | {f"suspect-{n}": 3 for n in range(4)}
    )
    ids = hold(own_redis, **times, bad=5)

    with start(tmp_path, own_redis) as node, OutputQueue(port=own_redis.port, name=JOB) as output:
        count = len(times) + 1
        results = {result.uri: result for _, result in zip(range(count), output.results(60), strict=False)}
        wait_until(lambda: node.heartbeat().get("redelivered") == count, "the heartbeat tells")

    failure = results.pop("bad")
    assert all(results[uri].outputs["y"].tolist() == [3, 3, 3, 3] for uri in times)
    batches = {uri: result.receipt.batch for uri, result in results.items() if result.receipt}
    assert max(batches[f"new-{n}"] for n in range(8)) > 1
    assert {batches[f"suspect-{n}"] for n in range(4)} == {1}
    assert failure.error is not None
    assert failure.error[0] == ErrorCode.DELIVERED_TOO_OFTEN
    (letter,) = dead_letters(own_redis)
    assert letter.uri == "bad"
    assert letter.reason.code == ErrorCode.DELIVERED_TOO_OFTEN
    assert letter.reason.deliveries == 6
    assert letter.reason.entry == ids["bad"].decode()


def test_a_record_that_may_be_tried_once_is_not_tried_again(own_redis: PrivateRedis, tmp_path: Path) -> None:
    hold(own_redis, once=1)

    with start(tmp_path, own_redis, maxDeliveries=1) as node:
        found = answers(own_redis, 1)

        assert found["once"].code == ErrorCode.DELIVERED_TOO_OFTEN
        assert node.heartbeat()["rows"] == 0
    (letter,) = dead_letters(own_redis)
    assert letter.uri == "once"


def test_a_killed_node_is_taken_over_from(
    pair: tuple[RunningNode, RunningNode, InputQueue], server: PrivateRedis
) -> None:
    killed, other, queue = pair
    reader = silence_reader(other, server)
    before = killed.heartbeat()["read"]
    queue.enqueue_many((str(n), {"x": np.array([0.01, n], np.float32)}) for n in range(100))
    wait_until(lambda: killed.heartbeat().get("read", 0) > before, "it has begun")
    killed.process.kill()
    killed.process.wait()
    reader.resume()

    found = answers(server, 100)

    assert all(found[str(n)][1] == n for n in range(100))
    killed.start()


def test_a_node_that_was_stopped_for_longer_than_its_lease_overwrites_nothing(
    pair: tuple[RunningNode, RunningNode, InputQueue], server: PrivateRedis
) -> None:
    stopped, other, queue = pair
    repeated = stopped.heartbeat()["repeated"]
    other_reader = silence_reader(other, server)
    (writer,) = stopped.children("writer")
    with server.client() as client, OutputQueue(port=server.port, name=JOB) as output:
        writer.suspend()  # however long the others go on, nothing is answered
        queue.enqueue("held", x=np.array([1, 7], np.float32))
        wait_until(lambda: client.xpending(JOB, keys.GROUP)["pending"] == 1, "it is held")
        for pid in processes(stopped):
            os.kill(pid, signal.SIGSTOP)
        other_reader.resume()
        wait_until(lambda: client.xlen(JOB) == 0, "the other node has answered")
        first = client.hgetall(keys.result_prefix(JOB) + "held")

        for pid in reversed(processes(stopped)):
            os.kill(pid, signal.SIGCONT)

        wait_until(lambda: stopped.heartbeat().get("repeated") == repeated + 1, "it has come too late")
        assert client.hgetall(keys.result_prefix(JOB) + "held") == first
        assert np.asarray(output.query_and_delete("held")).tolist() == [1, 7]


def test_a_batch_that_runs_for_longer_than_the_lease_stays_with_its_node(
    pair: tuple[RunningNode, RunningNode, InputQueue], server: PrivateRedis
) -> None:
    *nodes, queue = pair

    def total(name: str) -> int:
        return sum(node.heartbeat()[name] for node in nodes)

    redelivered, rows = total("redelivered"), total("rows")
    for n in range(2):
        queue.enqueue(str(n), x=np.array([1.5 * LEASE_S, n], np.float32))

    found = answers(server, 2)

    assert sorted(answer[1] for answer in found.values()) == [0, 1]
    wait_until(lambda: total("rows") == rows + 2, "the heartbeats tell")
    assert total("redelivered") == redelivered


def test_a_raising_record_is_kept_as_it_came(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Bad input is no dead letter."""
    bad = np.array([affine.RAISES, 0, 0, 0], np.float32)
    with start(tmp_path, own_redis) as node, InputQueue(port=own_redis.port, name=JOB) as queue:
        for n in range(20):
            queue.enqueue(str(n), x=bad if n == 7 else np.zeros(4, np.float32))
        queue.enqueue("short", x=np.zeros(3, np.float32))

        found = answers(own_redis, 21)

        failures = {uri: answer.code for uri, answer in found.items() if isinstance(answer, Failed)}
        assert failures == {"7": ErrorCode.INFERENCE_FAILED, "short": ErrorCode.INVALID_INPUT}
        (letter,) = dead_letters(own_redis)
        assert [*sum(letter.fields, ())] == encode_record("7", {"x": bad})
        assert letter.reason.code == ErrorCode.INFERENCE_FAILED
        assert letter.reason.message == "ValueError: a row that raises"
        assert "affine.py" in letter.reason.traceback
        assert letter.reason.deliveries == 1
        wait_until(lambda: node.heartbeat().get("dead") == 1, "the heartbeat tells")
        told = 'event="dead letter" uri=7 code=InferenceFailed reason="ValueError: a row that raises" records=1'
        wait_until(lambda: told in node.log, "the log tells")


def test_records_that_kill_workers_do_not_stop_a_node_that_starts(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with InputQueue(port=own_redis.port, name=JOB) as queue:
        for n in range(3):
            queue.enqueue(str(n), x=np.array([affine.KILLS, 0, 0, 0], np.float32))
        queue.enqueue("good", x=np.ones(4, np.float32))

        with start(tmp_path, own_redis, modelParallelism=2):
            found = answers(own_redis, 4)

    assert found["good"][1] == 4
    assert {found[str(n)].code for n in range(3)} == {ErrorCode.WORKER_DIED}


@pytest.mark.parametrize(
    ("later_s", "runs_s"), [(0.4, 3), (8, 9)], ids=["while it waits for a worker", "while it runs"]
)
def test_a_deadline_that_passes_in_the_node(
    later_s: float, runs_s: float, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with start(tmp_path, own_redis, "slow.py", batchSize=1) as node, own_redis.client() as client:
        deadline_ms = round((time.time() + later_s) * 1000)

        def add(uri: str, seconds: float, **more: int) -> None:
            fields = encode_record(uri, {"x": np.array([seconds, 0], np.float32)})
            client.xadd(JOB, dict(zip(fields[::2], fields[1::2], strict=True)) | more)

        add("before", 1)
        add("late", runs_s, deadline=deadline_ms)
        add("behind", 0)

        found = answers(own_redis, 3)

        assert found["late"].code == ErrorCode.DEADLINE_EXCEEDED
        assert found["before"].tolist() == [1, 0]
        assert found["behind"].tolist() == [0, 0]
        wait_until(lambda: node.heartbeat().get("expired") == 1, "the heartbeat tells")
        assert node.heartbeat()["rows"] == (2 if later_s < 1 else 3)
    assert dead_letters(own_redis) == []


def test_outputs_that_do_not_fit_beside_each_other_fail_nobody(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        start(tmp_path, own_redis, "large.py", slotBytes="1m") as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        (worker,) = node.children("worker")
        worker.suspend()  # so that they come together
        queue.enqueue_many((str(n), {"x": np.array([n], np.float32)}) for n in range(12))
        wait_until(lambda: node.heartbeat().get("read") == 12, "all are read")
        worker.resume()

        found = answers(own_redis, 12)
        queue.enqueue_many((f"later {n}", {"x": np.array([n], np.float32)}) for n in range(12))
        later = answers(own_redis, 12)

        assert all(found[str(n)].shape == (80_000,) and found[str(n)][0] == n for n in range(12))
        assert all(later[f"later {n}"][-1] == n for n in range(12))
    assert dead_letters(own_redis) == []
