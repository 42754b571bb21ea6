"""What the writer publishes of a slot and counts, with a real Redis."""

from collections.abc import Iterator
from typing import Any

import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import WRITE, WRITER, Count
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, Outcome, Row
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.writer.spec import WriterSpec
from cluster_serving.node.writer.writer import Writer
from support.private_redis import PrivateRedis

JOB = "writer"


@pytest.fixture
def client(own_redis: PrivateRedis) -> Iterator[Any]:
    with own_redis.client() as client:
        client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
        yield client


def read(client: Any, count: int) -> list[bytes]:
    """So many records that the node has read; their ids."""
    ids = [client.xadd(JOB, {"uri": str(number)}) for number in range(count)]
    client.xreadgroup(keys.GROUP, "node", {JOB: ">"}, count=count)
    return ids


def publish(server: PrivateRedis, *rows: tuple[bytes, str]) -> dict[Count, int]:
    """Publish a slot of these rows, each an entry id and the code of its error (empty: a result), and end; what was counted."""
    geometry = Geometry(slots=1, batch=len(rows), slot_bytes=4096, workers=1)
    ring = Ring(geometry)
    bells = [Bell() for _ in range(3)]
    slot = ring.slots[0]
    ring.move("reader", 0, State.FILLING)
    slot.fill(b"", [Row(entry_id, entry_id, b"", 0, place) for place, (entry_id, _) in enumerate(rows)], len(rows))
    ring.hand_over("reader", 0, 0, 1)
    ring.move("worker", 0, State.RUNNING)
    slot.outputs[:1] = b"1"
    outcomes = [
        Outcome([place], error=(code, "why")) if code else Outcome([place], values=[(0, 1)])
        for place, (_, code) in enumerate(rows)
    ]
    slot.add(outcomes, len(rows), 1)
    ring.move("worker", 0, State.DONE)
    lane = LaneSpec(
        job=JOB,
        node="node",
        redis=RedisSettings(port=server.port),
        geometry=geometry,
        ring_fd=ring.fd,
        reader_bell=bells[0].fileno(),
        writer_bell=bells[1].fileno(),
        worker_bells=(bells[2].fileno(),),
    )
    writer = Writer(WriterSpec(lane, result_ttl_ms=0, legacy_filter_text=False, model_hash="", max_dead_letters=10))
    writer.stop()  # once this slot is published

    writer.run()

    written = WRITE.described(ring.measures[WRITER].tolist())
    assert (sum(written["counts"]), written["sum"] > 0) == (1, True)
    counted = {count: ring.counters[WRITER][count] for count in Count if ring.counters[WRITER][count]}
    for bell in bells:
        bell.close()
    ring.close()
    return counted


def test_what_a_writer_counts(client: Any, own_redis: PrivateRedis) -> None:
    good, invalid, raised, late = read(client, 4)

    counted = publish(
        own_redis,
        (good, ""),
        (invalid, ErrorCode.INVALID_INPUT),
        (raised, ErrorCode.INFERENCE_FAILED),
        (late, ErrorCode.DEADLINE_EXCEEDED),
    )

    assert counted == {Count.ANSWERED: 1, Count.FAILED: 3, Count.DEAD: 1, Count.EXPIRED: 1}
    assert client.xlen(keys.dead_key(JOB)) == 1


def test_what_others_have_finished_counts_as_nothing_else(client: Any, own_redis: PrivateRedis) -> None:
    good, raised, late = read(client, 3)
    client.xack(JOB, keys.GROUP, raised, late)

    counted = publish(own_redis, (good, ""), (raised, ErrorCode.INFERENCE_FAILED), (late, ErrorCode.DEADLINE_EXCEEDED))

    assert counted == {Count.ANSWERED: 1, Count.REPEATED: 2}
    assert client.xlen(keys.dead_key(JOB)) == 0


@pytest.mark.timeout(30)
def test_a_failed_record_whose_group_is_gone_does_not_hold_up_the_end(client: Any, own_redis: PrivateRedis) -> None:
    (raised,) = read(client, 1)
    client.xgroup_destroy(JOB, keys.GROUP)

    counted = publish(own_redis, (raised, ErrorCode.INFERENCE_FAILED))

    assert counted == {Count.REPEATED: 1}, "it will be read again"
    assert client.xlen(JOB) == 1
