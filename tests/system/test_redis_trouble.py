"""A real node while Redis restarts, loads, is a replica, slow, full, cut off or robbed of its keys: it goes on by itself."""

import json
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, OutputQueue, keys
from support.clients import in_background
from support.failover import failover
from support.models import MODELS
from support.private_redis import PrivateRedis, fill, free_port, hurry, slow_loading
from support.proxy import Proxy, proxy
from support.running_node import RunningNode, running_node
from support.wait import wait_until

pytestmark = pytest.mark.redis
JOB = "redis_trouble"
SETTINGS = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "batchSize": 16}
_numbers = count()


@pytest.fixture(scope="module")
def way(server: PrivateRedis) -> Iterator[Proxy]:
    with proxy(server.port) as way:
        yield way


@pytest.fixture(scope="module")
def running(server: PrivateRedis, way: Proxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    url = f"127.0.0.1:{way.port}"
    with running_node(tmp_path_factory.mktemp("node"), server, redisUrl=url, **SETTINGS) as node:
        yield node


@pytest.fixture
def node(running: RunningNode, server: PrivateRedis) -> Iterator[RunningNode]:
    """The node of all these tests; after each it must serve, be ready, and hold nothing."""
    yield running
    with InputQueue(port=server.port, name=JOB) as queue:
        assert queue.predict(np.ones(4, np.float32), timeout=30)[1] == 4
    wait_until(lambda: running.heartbeat().get("state") == "ready", "the node is ready again")
    with server.client() as client:
        wait_until(lambda: client.xlen(JOB) == 0, "nothing is left")
    assert running.process.poll() is None


@contextmanager
def records_answered(port: int, how_many: int = 200) -> Generator[list[str]]:
    """Enqueue records before a block; after it every one must have its own right answer."""
    first = next(_numbers) * 1000
    uris = [f"{first + n}" for n in range(how_many)]
    with InputQueue(port=port, name=JOB) as queue:
        queue.enqueue_many((uri, {"x": np.array([int(uri), 0, 0, 0], np.float32)}) for uri in uris)
    yield uris
    check_answers(uris, port=port)


def check_answers(uris: list[str], **where: Any) -> None:
    """Wait until each of these records has its own right answer."""
    with OutputQueue(name=JOB, **where) as output:
        for uri in uris:
            answer = wait_until(partial(_answer, output, uri), f"the answer of {uri}", 30) or []
            assert answer[1] == float(uri)


def _answer(output: OutputQueue, uri: str) -> list[float] | None:
    answer: Any = output.query(uri, delete=True)
    return None if answer == "[]" else answer


@contextmanager
def reconnects(node: RunningNode) -> Generator[None]:
    """The node must have lost Redis in a block, and found it again soon after."""
    before = int(node.heartbeat().get("reconnects", 0))
    yield
    wait_until(lambda: int(node.heartbeat().get("reconnects", 0)) > before, "the heartbeat counts a reconnect")


def beat_in(server: PrivateRedis) -> dict[str, Any]:
    """Return the heartbeat that the one node tells this Redis; empty: there is none."""
    with server.client() as client:
        for key in client.scan_iter(keys.node_key(JOB, "*")):
            return dict(json.loads(client.get(key) or "{}"))
    return {}


def wait_until_noticed(node: RunningNode, since: int, what: str = "cannot read from Redis") -> None:
    """Wait until the node's log, after so many characters, says that it is in trouble."""
    wait_until(lambda: what in node.log[since:], "the node has noticed")


def wait_until_unready(node: RunningNode) -> None:
    """Wait until nobody is told that the node is ready."""
    wait_until(lambda: node.heartbeat_now().get("state") != "ready", "the node is not ready")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_redis_restarts(node: RunningNode, server: PrivateRedis, number: int) -> None:
    with server.client() as client:
        client.config_set("appendfsync", "always")  # what a killed Redis had answered for is on the disk
    since = len(node.log)
    with records_answered(server.port), reconnects(node):
        server.stop(number)
        wait_until_noticed(node, since)
        server.start()


def test_redis_loads(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client:
        filler = fill(client, 400)
        client.config_set("appendfsync", "always")
        since = len(node.log)
        with records_answered(server.port), reconnects(node):
            server.stop()
            with in_background(lambda: server.start(*slow_loading(20_000))):
                wait_until_noticed(node, since, "loading the dataset")
                hurry(server)
        client.delete(*filler)


def test_redis_becomes_a_replica_and_a_master_again(node: RunningNode, server: PrivateRedis) -> None:
    since = len(node.log)
    with server.client() as client, records_answered(server.port), reconnects(node):
        client.replicaof("127.0.0.1", free_port())
        wait_until_noticed(node, since)
        wait_until_unready(node)
        client.replicaof("NO", "ONE")


def test_redis_wants_a_password_for_a_while(node: RunningNode, server: PrivateRedis) -> None:
    since = len(node.log)
    with records_answered(server.port), reconnects(node), redis.Redis(port=server.port) as admin:
        admin.config_set("requirepass", "s3cret")
        admin.client_kill_filter(skipme=True, _type="normal")
        wait_until_noticed(node, since)
        admin.config_set("requirepass", "")


def test_results_are_published_when_redis_has_no_memory(node: RunningNode, server: PrivateRedis) -> None:
    """The script that finishes records makes room: Redis lets a script go on whose first write needs no memory."""
    (worker,) = node.children("worker")
    with server.client() as client:
        try:
            worker.suspend()
            with records_answered(server.port, 20):
                client.config_set("maxmemory", "1")
                worker.resume()
        finally:
            worker.resume()
            client.config_set("maxmemory", "0")


def test_the_group_is_deleted(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client, reconnects(node), records_answered(server.port):
        client.xgroup_destroy(JOB, keys.GROUP)


def test_the_stream_is_deleted(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client, reconnects(node):
        client.delete(JOB)


def test_the_stream_is_something_else_for_a_while(node: RunningNode, server: PrivateRedis) -> None:
    since = len(node.log)
    with server.client() as client, reconnects(node):
        client.set(JOB, "no stream")
        wait_until_noticed(node, since)
        wait_until(lambda: node.heartbeat().get("state") not in (None, "ready"), "the node says that it is not ready")
        client.delete(JOB)


def test_result_and_reply_keys_are_something_else(node: RunningNode, server: PrivateRedis) -> None:
    """A result replaces whatever has its key; a reply that goes nowhere harms none of its batch."""
    reply = keys.reply_key(JOB, "text")
    with server.client() as client:
        client.set(reply, "no stream")
        client.xadd(JOB, {"uri": "lost", "string:x": "[]", "reply": reply})
        for n in range(100):
            client.set(keys.result_prefix(JOB) + str(90_000 + n), "no hash")
        with InputQueue(port=server.port, name=JOB) as queue:
            queue.enqueue_many(
                (str(90_000 + n), {"x": np.array([90_000 + n, 0, 0, 0], np.float32)}) for n in range(100)
            )

        wait_until(lambda: client.xlen(JOB) == 0, "all are finished")
        check_answers([str(90_000 + n) for n in range(100)], port=server.port)
        assert client.get(reply) == b"no stream"


def test_a_slow_redis(node: RunningNode, server: PrivateRedis, way: Proxy) -> None:
    way.delay_s = 0.2
    try:
        with records_answered(server.port):
            pass
    finally:
        way.delay_s = 0.0


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_cut_in_the_middle_of_the_records(node: RunningNode, server: PrivateRedis, way: Proxy, keep: float) -> None:
    cut = way.cut_reply(b"tensor:x", keep)
    with reconnects(node), records_answered(server.port):
        wait_until(cut.happened.is_set, "the connection is cut")


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_cut_in_the_middle_of_the_results(node: RunningNode, server: PrivateRedis, way: Proxy, keep: float) -> None:
    """With 1.0 Redis has published and the writer never hears of it: publishing again changes nothing."""
    cut = way.cut_command(b"receipt", keep)
    with records_answered(server.port):
        wait_until(cut.happened.is_set, "the connection is cut")


def test_a_frozen_redis(node: RunningNode, server: PrivateRedis) -> None:
    since = len(node.log)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        wait_until_noticed(node, since)
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_a_failover_loses_nothing_that_was_replicated(tmp_path: Path) -> None:
    with (
        failover(tmp_path) as servers,
        running_node(tmp_path / "node", servers.master, redisUrl=servers.url, **SETTINGS) as node,
    ):
        (worker,) = node.children("worker")
        with InputQueue(url=servers.url, name=JOB, patience_s=120) as queue:
            worker.suspend()  # so that most are unanswered when the master dies
            queue.enqueue_many((str(n), {"x": np.array([n, 0, 0, 0], np.float32)}) for n in range(500))
            servers.wait_for_replica()
            servers.kill_master()
            worker.resume()

            queue.enqueue("500", x=np.array([500, 0, 0, 0], np.float32))
            servers.be_patient()
            check_answers([str(n) for n in range(501)], url=servers.url)
            assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
        assert node.process.poll() is None
        wait_until(lambda: beat_in(servers.replica).get("reconnects"), "the heartbeat counts a reconnect")
