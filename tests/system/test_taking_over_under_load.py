"""Fate of records whose node died while the other nodes have plenty to do."""

import itertools
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue, keys
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.ring.metrics import READER, Count
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry
from support.clients import in_background
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.slots import ring_path
from support.wait import wait_until

JOB = "busy"
SLOT_BYTES = 1 << 20
HOUR_MS = 3_600_000


def start(home: Path, server: PrivateRedis, model: str = "affine.py", **settings: Any) -> Any:
    """A node of the job, for a block."""
    defaults = {"modelPath": str(MODELS / model), "jobName": JOB, "batchSize": 8, "lease": 2}
    return running_node(home, server, **{**defaults, **settings})


def hold(client: Any, consumer: str, deliveries: int, **records: Any) -> dict[str, bytes]:
    """Records of these inputs that a consumer has read, so many times; the ids of their entries."""
    if not client.exists(JOB):
        client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
    ids: dict[str, bytes] = {}
    for uri, x in records.items():
        fields = encode_record(uri, {"x": np.array(x, np.float32)})
        ids[uri] = client.xadd(JOB, dict(zip(fields[::2], fields[1::2], strict=True)))
        client.xreadgroup(keys.GROUP, consumer, {JOB: ">"})
        for _ in range(deliveries - 1):
            client.xclaim(JOB, keys.GROUP, consumer, 0, [ids[uri]])
    return ids


@contextmanager
def trickle(server: PrivateRedis) -> Generator[None]:
    """A record every 20 ms for a block: each read of the node finds one."""
    over = threading.Event()

    def run() -> None:
        with InputQueue(port=server.port, name=JOB) as queue:
            for number in itertools.count():
                queue.enqueue(f"new-{number}", x=np.zeros(4, np.float32))
                if over.wait(0.02):
                    return

    with in_background(run):
        try:
            yield
        finally:
            over.set()


def test_what_a_dead_node_held_does_not_wait_for_the_end_of_the_load(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with own_redis.client() as client:
        hold(client, "ghost", 1, old=[1, 1, 1, 1])
        with trickle(own_redis), start(tmp_path, own_redis, lease=6):
            wait_until(lambda: client.exists(keys.result_prefix(JOB) + "old"), "it is taken over")


def test_suspects_that_others_finish_meanwhile_do_not_hold_up_new_records(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with own_redis.client() as client:
        ids = hold(client, "ghost", 2, **{f"suspect-{n}": [0.5, n] for n in range(256)})
        with start(tmp_path, own_redis, "slow.py", lease=2) as node, InputQueue(port=own_redis.port, name=JOB) as queue:
            wait_until(lambda: node.heartbeat().get("redelivered"), "the first one runs")
            client.xack(JOB, keys.GROUP, *ids.values())
            client.xdel(JOB, *ids.values())
            queue.enqueue("new", x=np.array([0, 1], np.float32))

            wait_until(lambda: client.exists(keys.result_prefix(JOB) + "new"), "it is answered")


def ring_of(node: RunningNode) -> Ring:
    """The ring of a node of one worker, as its own processes see it."""
    geometry = Geometry(slots=6, batch=8, slot_bytes=SLOT_BYTES, workers=1)
    return Ring(geometry, os.open(ring_path(node.process.pid), os.O_RDWR))


def test_a_clock_that_is_set_makes_no_record_late_for_long(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        start(tmp_path, own_redis, slotBytes=SLOT_BYTES, lease=3600) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        trickle(own_redis),
    ):
        ring = ring_of(node)
        wrong_ms = ring.clock_offset_ms = ring.clock_offset_ms + HOUR_MS

        wait_until(lambda: ring.clock_offset_ms < wrong_ms - HOUR_MS / 2, "it has looked at Redis' clock again")
        assert queue.predict(np.zeros(4, np.float32), timeout=60)[1] == 0
        ring.close()


def test_a_clock_that_is_set_back_holds_no_batch(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        start(tmp_path, own_redis, "slow.py", slotBytes=SLOT_BYTES, lease=60) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        own_redis.client() as client,
    ):
        ring = ring_of(node)
        ring.clock_offset_ms += HOUR_MS
        for number in range(2):
            queue.enqueue(str(number), x=np.array([10 * (number == 0), number], np.float32))
            wait_until(lambda read=number + 1: ring.counters[READER][Count.READ] == read, "it is read")  # type: ignore[misc]
        wait_until(lambda: ring.every(State.FILLING), "the second one waits for the worker")
        ring.clock_offset_ms -= HOUR_MS

        wait_until(lambda: client.exists(keys.result_prefix(JOB) + "1"), "it is answered")
        ring.close()
