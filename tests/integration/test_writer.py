"""Results and dead letters that the writer publishes of a slot, and its counts, with a real Redis."""

import os
import threading
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import redis

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.dead_letter import UNPUBLISHED, decode_letter
from cluster_serving.node.job.redis_program import find_server
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import WRITE, WRITER, Count
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, Outcome, Row
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.writer.spec import WriterSpec
from cluster_serving.node.writer.writer import Writer
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

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


def publish(
    server: PrivateRedis,
    *rows: tuple[bytes, str],
    replies: Sequence[str] = (),
    user: str | None = None,
    dead_letters: int = 10,
) -> dict[Count, int]:
    """Publish a slot of these rows, each an entry id and the code of its error (empty: a result), and end; what was counted.

    The first rows are answered in the reply streams `replies`. `user` is the writer's own.
    """
    geometry = Geometry(slots=1, batch=len(rows), slot_bytes=4096, workers=1)
    ring = Ring(geometry)
    bells = [Bell() for _ in range(3)]
    slot = ring.slots[0]
    ring.move("reader", 0, State.FILLING)
    streams = [name.encode() for name in replies] + [b""] * len(rows)
    table = [Row(entry_id, entry_id, streams[place], 0, place) for place, (entry_id, _) in enumerate(rows)]
    slot.fill(b"", table, len(rows))
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
        redis=RedisSettings(port=server.port, username=user, password=user),
        geometry=geometry,
        ring_fd=ring.fd,
        reader_bell=bells[0].fileno(),
        writer_bell=bells[1].fileno(),
        worker_bells=(bells[2].fileno(),),
    )
    spec = WriterSpec(
        lane,
        result_ttl_ms=0,
        legacy_filter_text=False,
        model_hash="",
        max_dead_letters=dead_letters,
        max_dead_letter_bytes=1 << 20,
    )
    writer = Writer(spec)
    writer.stop()  # once this slot is published

    writer.run()

    written = WRITE.described(ring.measures[WRITER].tolist())
    assert sum(written["counts"]) > 0 < written["sum"]
    counts = {count: ring.counters[WRITER][count] for count in Count if not count.name.endswith("_US")}
    counted = {count: number for count, number in counts.items() if number}
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


@pytest.fixture
def limited(client: Any) -> str:
    """A user who may write the keys of the job, and no frontend's."""
    mine = [JOB, f"{keys.result_prefix(JOB)}*", keys.reply_key(JOB, "*"), keys.dead_key(JOB)]
    client.acl_setuser("limited", True, passwords="+limited", keys=mine, categories=["+@all"])
    return "limited"


FOREIGN = keys.reply_key("another", "client")


@pytest.mark.timeout(30)
def test_a_reply_that_redis_refuses_holds_up_no_other(client: Any, own_redis: PrivateRedis, limited: str) -> None:
    refused, mine, good, raised = read(client, 4)
    answers = keys.reply_key(JOB, "mine")
    client.xgroup_create(answers, "client", "$", mkstream=True)

    counted = publish(
        own_redis,
        *((refused, ""), (mine, ""), (good, ""), (raised, ErrorCode.INFERENCE_FAILED)),
        replies=[FOREIGN, answers],
        user=limited,
    )

    assert counted == {Count.ANSWERED: 2, Count.FAILED: 2, Count.DEAD: 2}
    assert client.xlen(answers) == 1
    assert client.hget(keys.result_prefix(JOB).encode() + good, keys.VALUE) == b"1"
    assert (client.xlen(JOB), client.xpending(JOB, keys.GROUP)["pending"]) == (0, 0)
    (letter, other) = (decode_letter(*each) for each in raw(client, keys.dead_key(JOB)))
    assert (letter.reason.code, other.reason.code) == (UNPUBLISHED, ErrorCode.INFERENCE_FAILED)
    assert letter.reason.entry == refused.decode()
    assert letter.reason.message.startswith("Redis refuses the result: ")
    assert not client.exists(FOREIGN)


@pytest.mark.timeout(30)
def test_where_no_dead_letters_are_kept_it_holds_up_nobody_either(
    client: Any, own_redis: PrivateRedis, limited: str
) -> None:
    (refused,) = read(client, 1)

    counted = publish(own_redis, (refused, ""), replies=[FOREIGN], user=limited, dead_letters=0)

    assert counted == {Count.FAILED: 1, Count.DEAD: 1}
    assert not client.exists(keys.dead_key(JOB))
    assert (client.xlen(JOB), client.xpending(JOB, keys.GROUP)["pending"]) == (0, 0)


# Puts the stream back between two attempts, each of which is refused three times: the batch, the first result, its dead letter.
MEND = """
local count = tonumber(redis.call('INFO', 'errorstats'):match('errorstat_WRONGTYPE:count=(%d+)') or 0)
if count < 3 or count % 3 > 0 then return 0 end
redis.call('RENAME', KEYS[2], KEYS[1])
return 1
"""


@pytest.mark.timeout(30)
def test_a_job_that_redis_refuses_is_published_later(client: Any, own_redis: PrivateRedis) -> None:
    first, second = read(client, 2)
    client.rename(JOB, "aside")
    client.set(JOB, "no stream")

    def mend() -> None:
        wait_until(
            lambda: client.eval(MEND, 2, JOB, "aside"), "the batch, the first result and its dead letter were refused"
        )

    mending = threading.Thread(target=mend)
    mending.start()
    counted = publish(own_redis, (first, ""), (second, ""))
    mending.join()

    assert counted == {Count.ANSWERED: 2, Count.RECONNECTS: 1}
    assert (client.xlen(JOB), client.xlen(keys.dead_key(JOB))) == (0, 0)


@pytest.mark.skipif(find_server(os.environ).version < (7,), reason="--cluster-port came with Redis 7.0")
@pytest.mark.timeout(60)
def test_a_reply_in_a_slot_of_its_own_holds_up_no_other(tmp_path: Path) -> None:
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with private_redis(tmp_path, *options) as server, server.client() as client:
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: client.info("cluster") and can_write(client), "the cluster takes writes")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{__name__}.JOB", "{writer}")
            client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
            refused, good = read(client, 2)

            counted = publish(server, (refused, ""), (good, ""), replies=[FOREIGN])

            assert counted == {Count.ANSWERED: 1, Count.FAILED: 1, Count.DEAD: 1}
            assert client.exists(keys.result_prefix(JOB).encode() + good)
            (letter,) = (decode_letter(*each) for each in raw(client, keys.dead_key(JOB)))
            assert "CROSSSLOT" in letter.reason.message


def can_write(client: Any) -> bool:
    try:
        return bool(client.set("x", "y"))
    except redis.ResponseError:
        return False


def raw(client: Any, stream: str) -> list[tuple[bytes, list[bytes]]]:
    """The entries of a stream, fields and values in a row."""
    return [(entry_id, list(chain.from_iterable(fields.items()))) for entry_id, fields in client.xrange(stream)]


@pytest.mark.timeout(30)
def test_a_failed_record_whose_group_is_gone_does_not_hold_up_the_end(client: Any, own_redis: PrivateRedis) -> None:
    (raised,) = read(client, 1)
    client.xgroup_destroy(JOB, keys.GROUP)

    counted = publish(own_redis, (raised, ErrorCode.INFERENCE_FAILED))

    assert counted == {Count.REPEATED: 1}, "it will be read again"
    assert client.xlen(JOB) == 1
