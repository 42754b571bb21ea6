"""Heartbeat of a node: ready only while it consumes, measured figures, and the state of its Redis."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import InputQueue, keys
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.job.redis_kind import counted_memory
from support.busy_redis import busy
from support.held_starts import held_starts
from support.models import MODELS, affine
from support.private_redis import PrivateRedis, private_redis
from support.proxy import proxy
from support.running_node import RunningNode, running_node
from support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.measured]
JOB = "heartbeats"
SETTINGS = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "maxRedisMemoryUse": 0.5, "redisTimeout": 500}
TENSORBOARD = {"tensorboardDir": "runs", "logInterval": 1} if find_spec("tensorboard") else {}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    """A Redis whose memory is measured: it never rewrites its file, for which Redis 6.2 takes 10 MB for a while."""
    with private_redis(tmp_path_factory.mktemp("redis"), "--auto-aof-rewrite-percentage", "0") as server:
        yield server


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of `held_starts` for the shared node."""
    return tmp_path_factory.mktemp("shared") / "held"


@pytest.fixture(scope="module")
def shared(server: PrivateRedis, held: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", held_starts(held))
        with running_node(tmp_path_factory.mktemp("node"), server, **SETTINGS, **TENSORBOARD) as node:
            patch.undo()
            yield node


@pytest.fixture
def node(shared: RunningNode, server: PrivateRedis) -> RunningNode:
    """The node of all tests that leave it serving, with a Redis that lacks nothing, and no dead letters."""
    with server.client() as client:
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
        client.delete(keys.dead_key(JOB))
        wait_until(lambda: not client.exists(keys.full_key(JOB)), "records are admitted")
    shared.settle()
    return shared


def states_of(node: RunningNode, stop: threading.Event, found: list[str]) -> None:
    while not stop.is_set():
        state = node.heartbeat_now().get("state", "")
        if not found or found[-1] != state:
            found.append(state)


def test_a_node_whose_worker_is_gone_is_unready_until_another_is_there(node: RunningNode, held: Path) -> None:
    (worker,) = node.children("worker")
    (held / "worker").touch()
    worker.kill()

    wait_until(lambda: node.heartbeat().get("state") == "unready", "it says that it cannot answer")
    (held / "worker").unlink()
    wait_until(lambda: node.heartbeat().get("state") == "ready", "it can again")


def test_it_is_listed_until_it_has_said_that_it_stops(own_redis: PrivateRedis, tmp_path: Path) -> None:
    found: list[str] = []
    stop = threading.Event()
    with running_node(tmp_path, own_redis, **SETTINGS) as node, own_redis.client() as client:
        (key,) = client.zrange(keys.NODES, 0, -1)
        beat = json.loads(client.get(key))
        watching = threading.Thread(target=states_of, args=(node, stop, found))
        watching.start()
        wait_until(lambda: found, "it is looked at")
        (reader,) = node.children("reader")
        reader.suspend()
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "draining" in found, "it says that it stops")
        reader.resume()

        assert node.process.wait(120) == 0
        stop.set()
        watching.join()

        assert client.zrange(keys.NODES, 0, -1) == []
        assert not client.exists(key)
    assert (beat["job"], beat["raw"], beat["already_batched"]) == (JOB, False, False)
    assert key.decode() == keys.node_key(JOB, beat["node"])


def test_it_names_the_model(node: RunningNode) -> None:
    assert node.heartbeat()["model_hash"].startswith("sha256:")


def test_it_tells_its_load_and_status_shows_it(node: RunningNode, server: PrivateRedis) -> None:
    over = threading.Event()
    begun = node.heartbeat()["answered"]

    def loaded() -> dict[str, Any]:
        beat = node.heartbeat()
        load: dict[str, Any] = beat.get("load") or {}
        return load if beat.get("answered", 0) > begun + 1000 and load["records_s"] > 10 else {}

    def call() -> None:
        with InputQueue(port=server.port, name=JOB) as queue:
            while not over.is_set():
                list(queue.predict_many([np.ones(4, np.float32)] * 500, timeout=300))

    calling = threading.Thread(target=call)
    calling.start()
    try:
        load = wait_until(loaded, "it has a rate")
        environment = os.environ | {"CLUSTER_SERVING_HOME": str(node.config_path.parent / "state")}
        command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "status"]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
        told = subprocess.run(
            [*command, "--json"], env=environment, capture_output=True, check=True, timeout=120
        ).stdout
    finally:
        over.set()
        calling.join()

    assert 0 < load["p50_s"] <= load["p99_s"]
    assert load["rows"] >= 1
    assert 0 < load["busy"][0] <= 1
    assert 0 < load["redis"] <= 1
    assert 0 < load["stages"]["model"] < sum(load["stages"].values()) < 60
    processes = {process["name"]: process for process in load["processes"]}
    assert list(processes) == ["reader", "writer", "worker-0"]
    assert all(0 < process["busy"] + process["blocked"] <= 1 and process["cpu"] > 0 for process in load["processes"])
    assert {process["pid"] for process in load["processes"]} == {
        child.pid for kind in ("reader", "writer", "worker") for child in node.children(kind)
    }
    assert processes["writer"]["blocked"] > 0  # it waits for Redis
    headings, row, limit = (line.split() for line in shown.splitlines())
    assert row[:2] == [JOB, "ready"]
    assert float(row[headings.index("rec/s")].replace(",", "")) > 10
    assert " ".join(limit).endswith((".", "`."))
    (report,) = json.loads(told)
    assert report["load"]["records_s"] > 10
    assert report["load"]["stages"]["write"] > 0
    assert report["limit"]["sentence"]


def test_it_writes_scalars_for_tensorboard(node: RunningNode) -> None:
    pytest.importorskip("tensorboard")
    (file,) = node.config_path.parent.glob(f"runs/*-{JOB}-*/events.out.tfevents.*")
    begun = file.stat().st_size

    wait_until(lambda: file.stat().st_size > begun, "a point without load")

    assert b"Serving Throughput" in file.read_bytes()
    assert "tensorflow" not in Path(f"/proc/{node.process.pid}/maps").read_text()


def counted(beat: dict[str, Any]) -> Counter[str]:
    """Return the number of values in each histogram of the heartbeat, and the counters beside the histograms."""
    values = {name: sum(found["counts"]) for name, found in beat["histograms"].items()}
    return Counter(values | {name: beat[name] for name in ("answered", "rows", "runs")})


def test_it_tells_what_was_measured_and_goes_on_when_it_has_changed(node: RunningNode, server: PrivateRedis) -> None:
    begun = node.heartbeat()
    changes = node.log.count("event=serving")

    def so_far() -> Counter[str]:
        found = counted(node.heartbeat())
        found.subtract(counted(begun))
        return found

    with InputQueue(port=server.port, name=JOB) as queue:
        answers = list(queue.predict_many([{"x": np.ones(4, np.float32)}] * 100))
        wait_until(lambda: so_far()["answered"] >= 100, "the node knows that all are answered")
        found, histograms = so_far(), node.heartbeat()["histograms"]
        assert len(answers) == found["queue_wait"] == found["rows"] == 100
        assert histograms["batch_rows"]["sum"] == node.heartbeat()["rows"]
        assert found["inference"] == found["batch_rows"] == found["runs"]
        assert 0 < histograms["inference"]["sum"] < histograms["inference"]["le"][-1]
        assert histograms["write"]["sum"] > 0
        assert 0 <= histograms["queue_wait"]["sum"] < node.heartbeat()["answered"] * 60

        node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: node.log.count("event=serving") == changes + 1, "a new lane serves")
        queue.predict(np.ones(4, np.float32), timeout=60)

        wait_until(lambda: so_far()["answered"] >= 101, "both lanes are told together")
        assert so_far()["queue_wait"] == 101
        assert so_far()["inference"] == found["runs"] + 1


def test_it_tells_what_waits_and_for_how_long(node: RunningNode, server: PrivateRedis) -> None:
    assert node.heartbeat()["oldest_ms"] == 0
    with server.client() as client, InputQueue(port=server.port, name=JOB) as queue:
        node.children("writer")[0].suspend()
        queue.enqueue("waits", x=np.ones(4, np.float32))

        wait_until(lambda: (beat := node.heartbeat())["backlog"] == 1 and beat["oldest_ms"] > 1000, "one waits")
        node.children("writer")[0].resume()

        wait_until(lambda: (beat := node.heartbeat())["backlog"] == 0 and beat["oldest_ms"] == 0, "none waits")
        assert client.xlen(JOB) == 0


def test_a_dead_letter_names_its_trace(node: RunningNode, server: PrivateRedis) -> None:
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    fields = encode_record("bad", {"x": np.array([affine.RAISES, 0, 0, 0], np.float32)})
    since = len(node.log)
    with server.client() as client:
        client.execute_command("XADD", JOB, "*", *fields, keys.TRACEPARENT, trace)

        wait_until(lambda: node.heartbeat()["dead_letters"] == 1, "it is dead")
        wait_until(lambda: "dead letter" in node.log[since:], "the writer says so")

        ((_, letter),) = client.xrange(keys.dead_key(JOB))
    assert letter[keys.TRACEPARENT] == trace
    (line,) = [line for line in node.log[since:].splitlines() if "dead letter" in line]
    assert f"traceparent={trace.decode()}" in line


def test_a_user_that_may_neither_list_the_node_nor_ask_for_the_memory_serves_programs(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with own_redis.client() as client:
        others = [f"cluster-serving{kind}_*" for kind in ("", ".reply", ".node", ".limits", ".full", ".dead")]
        may: dict[str, Any] = {"keys": [JOB, *others], "categories": ["+@all"], "commands": ["-info"]}
        client.acl_setuser("node", True, passwords="+geheim", **may)
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB}
    with running_node(tmp_path / "node", own_redis, **settings, redisUsername="node", redisPassword="geheim") as node:
        with InputQueue(port=own_redis.port, name=JOB) as queue:
            assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
        assert node.log.count("frontends cannot find this node") == 1
        assert "no heartbeat: Redis refuses it" not in node.log
        assert not re.search(r'cannot be reached" reason="[^"]*(NOPERM|no permissions)', node.log)
        assert node.stop() == 0


def test_it_follows_a_master_that_moves_behind_one_address(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """The old one lives on, read-only, and cuts no connection."""
    (tmp_path / "other").mkdir()
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB}
    with private_redis(tmp_path / "other") as other, proxy(own_redis.port) as address, own_redis.client() as client:
        where = {"redisUrl": f"127.0.0.1:{address.port}"}
        with running_node(tmp_path / "node", own_redis, **settings, **where) as node, other.client() as new:
            client.replicaof("127.0.0.1", other.port)
            wait_until(lambda: "no heartbeat: Redis refuses it" in node.log, "the old master takes none")

            address.target = other.port

            wait_until(lambda: new.zcard(keys.NODES), "its heartbeat is on the new master")
            assert re.search(r'refuses it" reason="[^"]*read only replica', node.log)  # Redis 6 names the script first
            assert not re.search(r'cannot be reached" reason="[^"]*read only', node.log)
        client.replicaof("NO", "ONE")


def fill_dead_letters(client: Any, letters: int, size: int = 100_000) -> int:
    """So many of this size; the memory that all of them take."""
    for number in range(letters):
        client.xadd(keys.dead_key(JOB), {"dead_letter": "{}", "uri": str(number), "x": b"x" * size})
    taken: int = client.memory_usage(keys.dead_key(JOB), samples=0)
    return taken


def test_the_oldest_dead_letters_give_way_before_admission_closes(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client, InputQueue(port=server.port, name=JOB) as queue:
        since, taken = len(node.log), fill_dead_letters(client, 400)
        # The node may use half of it: with half of the letters 6 MB too much are left, with a quarter 6 MB are free.
        client.config_set("maxmemory", str(round(2 * (counted_memory(client.info("memory")) - 0.625 * taken))))

        wait_until(lambda: client.xlen(keys.dead_key(JOB)) == 100, "all but a quarter are gone")

        assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
        assert [int(letter[b"uri"]) for _, letter in client.xrange(keys.dead_key(JOB))] == list(range(300, 400))
        assert not client.exists(keys.full_key(JOB))
        told = "the oldest dead letters are deleted: Redis is short of memory"
        wait_until(lambda: node.log[since:].count(told) == 2, "it says so each time")


def test_dead_letters_that_would_not_help_stay(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client:
        fill_dead_letters(client, 3, 1_000)

        def is_full() -> bool:
            used = counted_memory(client.info("memory"))  # falls when Redis gives buffers back
            client.config_set("maxmemory", str(round(used * 1.5)))  # the node may use half of it
            return bool(client.exists(keys.full_key(JOB)))

        wait_until(is_full, "nothing is admitted")

        assert client.xlen(keys.dead_key(JOB)) == 3


def test_buffers_of_replicas_do_not_close_admission(node: RunningNode, server: PrivateRedis) -> None:
    """Redis takes them for no part of its maxmemory."""
    with (
        server.client() as client,
        socket.create_connection(("127.0.0.1", server.port)) as replica,
        InputQueue(port=server.port, name=JOB) as queue,
    ):
        client.config_set("repl-diskless-sync-delay", "0")
        replica.sendall(b"SYNC\r\n")  # and reads nothing

        def is_large() -> bool:
            client.set("sent to replicas", b"x" * 1_000_000)
            return bool(client.info("memory")["mem_not_counted_for_evict"] > 30_000_000)

        wait_until(is_large, "the replica's buffer is large")
        memory = client.info("memory")
        between = memory["used_memory"] - memory["mem_not_counted_for_evict"] // 2
        client.config_set("maxmemory", str(2 * between))  # the node may use half of it
        answered = node.heartbeat()["answered"]
        assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
        wait_until(lambda: node.heartbeat()["answered"] > answered, "the node has looked at the memory")

        assert not client.exists(keys.full_key(JOB))
        client.delete("sent to replicas")
        replica.close()

        def is_small() -> bool:
            return bool(client.info("memory")["mem_not_counted_for_evict"] < 2_000_000)

        wait_until(is_small, "Redis has given the buffer back, which is memory that other tests measure")


def test_the_memory_of_a_redis_that_was_busy_is_watched_again(node: RunningNode, server: PrivateRedis) -> None:
    since = len(node.log)
    with busy(server):
        wait_until(lambda: "no heartbeat: Redis refuses it" in node.log[since:], "Redis has refused the node")
    with server.client() as client:
        used = counted_memory(client.info("memory"))
        client.config_set("maxmemory", str(round(used * 1.5)))  # the node may use half of it

        wait_until(lambda: client.exists(keys.full_key(JOB)), "the node says that Redis is full")


def test_a_redis_that_throws_results_away_is_told(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", "volatile-lru")
        client.config_set("maxmemory", "1gb")

        wait_until(lambda: "Redis does not keep all that it accepts" in node.log, "the log says so")

    environment = os.environ | {"CLUSTER_SERVING_HOME": str(node.config_path.parent / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "status", JOB]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "warning" in told
    assert "throws away results that nobody has read yet" in " ".join(told.split())
    assert "(maxmemory-policy volatile-lru): set maxmemory-policy noeviction" in node.log


def test_nothing_is_admitted_while_redis_lacks_memory(node: RunningNode, server: PrivateRedis) -> None:
    with server.client() as client, InputQueue(port=server.port, name=JOB) as queue:
        used = counted_memory(client.info("memory"))
        client.config_set("maxmemory", str(round(used * 1.5)))
        why = wait_until(lambda: client.get(keys.full_key(JOB)), "the node says that Redis is full")
        assert b"(maxRedisMemoryUse 0.5)" in why
        assert 0 < client.pttl(keys.full_key(JOB)) <= 6000

        client.config_set("maxmemory", "0")

        wait_until(lambda: not client.exists(keys.full_key(JOB)), "it says so no more")
        assert queue.predict(np.ones(4, np.float32), timeout=60)[1] == 4
