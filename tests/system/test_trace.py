"""Receipts: where the time of a record went, as a real node, Redis and the client saw it."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, OutputQueue, keys
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.ring.ring import State
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.slots import slot_states
from support.wait import wait_until

JOB = "traced"
SLEEP_S = 0.25
CLOCK_MS = 5
"""Milliseconds that two looks at Redis' clock may differ by: ids are rounded down, and a node knows the clock by Redis' answers."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[RunningNode]:
    home = tmp_path_factory.mktemp("traced")
    model = str(MODELS / "slow.py")
    with running_node(home, redis_server, modelPath=model, jobName=JOB, batchSize=1, resultTimeToLive=600) as node:
        yield node


@pytest.fixture
def run(redis_server: PrivateRedis, tmp_path: Path) -> Run:
    """`trace`, as from a machine that knows nothing of the job."""

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "trace", *words]
        where = ["--job", JOB, "--redis-url", redis_server.url]
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(tmp_path / "state"), "COLUMNS": "80"}
        return subprocess.run(
            [*command, *where], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def row(seconds: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return {"x": np.array([seconds, 1], np.float32)}


def finished(output: OutputQueue, uri: str) -> None:
    wait_until(lambda: not isinstance(output.query(uri), str), f"the result of {uri}")


def replies(client: "redis.Redis", reply: str, count: int) -> list[tuple[int, Result]]:
    """Wait for so many results, and return for each the time in ms at which Redis got it, by Redis' own clock, and the result."""

    def all_there() -> list[tuple[int, Result]]:
        entries: Any = client.eval("return redis.call('XRANGE', KEYS[1], '-', '+')", 1, reply)
        found = [
            (int(entry[0].partition(b"-")[0]), each.result()) for entry in entries for each in read_replies([entry])
        ]
        return found if len(found) == count else []

    return wait_until(all_there, "the replies")


def test_the_stages_sum_to_the_total(node: RunningNode, redis_server: PrivateRedis) -> None:
    """The total is on Redis' clock, from the entry of the record to that of its reply; records wait here for one another."""
    reply = keys.reply_key(JOB, "test")
    with redis_server.client() as client:
        client.xgroup_create(reply, "client", mkstream=True)
        with InputQueue(port=redis_server.port, name=JOB) as queue:
            queue.predict(row(0), timeout=60)  # Redis knows the scripts from now on
        at_once = client.pipeline()
        for n in range(4):
            fields = encode_record(f"sum-{n}", row(SLEEP_S))
            at_once.xadd(JOB, dict(zip(fields[::2], fields[1::2], strict=True)) | {keys.REPLY: reply})
        at_once.execute()

        found = replies(client, reply, 4)

    totals_ms = [written_ms - result.receipt.enqueued_ms for written_ms, result in found if result.receipt]
    sums_ms = [sum(result.stages.values()) for _, result in found]
    print(totals_ms, [result.stages for _, result in found])
    assert all(of_stages <= total + CLOCK_MS for of_stages, total in zip(sums_ms, totals_ms, strict=True))
    # The writer's last step is in the total alone, and a busy machine may hold it up for one of the records.
    shares = [of_stages / total for of_stages, total in zip(sums_ms, totals_ms, strict=True)]
    assert statistics.median(shares) == pytest.approx(1, abs=0.1)
    assert all(result.stages["run"] >= 1000 * SLEEP_S for _, result in found)
    waits_ms = [total - result.stages["run"] for total, (_, result) in zip(totals_ms, found, strict=True)]
    assert waits_ms[3] > 2 * 1000 * SLEEP_S, "the last one waited for the others"


def test_the_total_is_within_what_the_client_saw(node: RunningNode, redis_server: PrivateRedis, run: Run) -> None:
    with InputQueue(port=redis_server.port, name=JOB) as queue, OutputQueue(port=redis_server.port, name=JOB) as output:
        begun_s = time.perf_counter()
        entry = queue.enqueue("a:b c/ü", **row(SLEEP_S))
        finished(output, "a:b c/ü")
        seen_ms = 1000 * (time.perf_counter() - begun_s)

        traced = json.loads(run("a:b c/ü", "--json").stdout)

    stages = traced["stages_ms"]
    assert list(stages) == ["stream", "fill", "wait", "run", "publish", "write"]
    assert sum(stages.values()) == pytest.approx(traced["total_ms"], abs=0.01)
    assert 1000 * SLEEP_S <= stages["run"] <= traced["total_ms"] <= seen_ms + 2 * CLOCK_MS
    assert (traced["entry"], traced["batch"], traced["worker"], traced["deliveries"]) == (entry, 1, 0, 1)
    assert traced["node"] == node.heartbeat()["node"]
    assert traced["model"] == node.heartbeat()["model_hash"]
    assert traced["error"] is None


def test_a_page_for_people(node: RunningNode, redis_server: PrivateRedis, run: Run) -> None:
    with InputQueue(port=redis_server.port, name=JOB) as queue, OutputQueue(port=redis_server.port, name=JOB) as output:
        queue.enqueue("page", **row(0.05))
        queue.enqueue("bad", x=np.zeros(3, np.float32))
        finished(output, "page")
        wait_until(lambda: output.query("bad") != "[]", "the error")

        page, bad = run("page"), run("bad")

    assert page.returncode == bad.returncode == 0, page.stderr + bad.stderr
    assert page.stdout.startswith(f"Record page\n  job       {JOB}\n  enqueued  20")
    stages = ["waited in the stream", "read, batch filling", "waited for a worker", "ran in the worker"]
    for name in (*stages, "waited for the writer", "written to Redis", "total"):
        assert f"\n  {name} " in page.stdout
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert "  failed    InvalidInput: " in bad.stdout


def test_a_record_that_came_again_says_so(redis_server: PrivateRedis, tmp_path: Path) -> None:
    settings = {"modelPath": str(MODELS / "slow.py"), "jobName": "traced_again", "batchSize": 1}
    with running_node(tmp_path, redis_server, **settings) as node:
        with InputQueue(port=redis_server.port, name="traced_again") as queue:
            queue.enqueue_many((f"again-{n}", row(8 * (n == 0))) for n in range(4))
        with redis_server.client() as client:
            wait_until(lambda: client.xpending("traced_again", keys.GROUP)["pending"] == 4, "all are taken")
            wait_until(lambda: State.RUNNING in slot_states(node.process.pid), "the first one runs")
            (reader,) = node.children("reader")
            reader.kill()
            with OutputQueue(port=redis_server.port, name="traced_again") as output:
                finished(output, "again-3")
            receipts = [json.loads(receipt) for receipt in _receipts(client, "traced_again", "again-", 4)]

    assert "deliveries" not in receipts[0], "the worker had it already"
    assert receipts[-1]["deliveries"] == 2


def _receipts(client: "redis.Redis", job: str, uris: str, count: int) -> list[bytes]:
    found = [client.hget(f"{keys.result_prefix(job)}{uris}{n}", keys.RECEIPT) for n in range(count)]
    return cast(list[bytes], found)


def test_what_cannot_be_traced(node: RunningNode, redis_server: PrivateRedis, run: Run) -> None:
    with InputQueue(port=redis_server.port, name=JOB) as queue:
        queue.predict(row(0), timeout=60)
    key = keys.result_prefix(JOB)
    with redis_server.client() as client:
        client.hset(f"{key}old", "value", "NaN")
        client.hset(f"{key}other", keys.RECEIPT, b'{"entry":"5-1","node":"n","filled_ms":1}')
        client.hset(f"{key}broken", keys.RECEIPT, b"{")
    said = {
        "nobody": f"no result of nobody in job {JOB}, where 0 records are under way",
        "old": "the record came in the original dialect, which has none",
        "other": "the receipt is incomplete (Object missing required field `model`): was it written by a node of another version?",
        "broken": "the receipt of broken in job traced cannot be read: field receipt is not JSON",
    }
    for uri, why in said.items():
        done = run(uri)

        assert done.returncode == ExitCode.FAILED
        assert why in done.stderr
        assert "Traceback" not in done.stderr
