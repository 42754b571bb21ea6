"""The Lua scripts, in a real Redis."""

import threading
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
import pytest
import redis

from cluster_serving.client import InputQueue, QueueFull, keys
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.protocol.admission import Records
from cluster_serving.client.protocol.resp import Argument
from cluster_serving.client.protocol.results import DELETE
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads import admission
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.dead_letter import DeadLetter
from cluster_serving.node.writer.address import FINISH
from cluster_serving.node.writer.dead_letters import DeadLetters
from support.private_redis import PrivateRedis
from support.wait import wait_until

_jobs = count()
REPLY = "reply-stream"
BATCH = b'{"node":"n"}'


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def job(client: redis.Redis) -> Iterator[str]:
    job = f"scripts-{next(_jobs)}"
    yield job
    client.delete(*client.keys(f"*{job}*"), job)


def entries(client: redis.Redis, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
    found: Any = client.xrange(stream)
    return list(found)


def enqueue(link: Link, job: str, *uris: bytes) -> list[bytes]:
    return admission.enqueue(link, job, Records([[b"uri", uri] for uri in uris], [b"tensor:x", b"\x00\xff"]))


def pending(client: redis.Redis, link: Link, job: str, records: int) -> list[bytes]:
    """Records that a node has read; their ids."""
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    ids = [
        entry_id
        for first in range(0, records, 500)
        for entry_id in enqueue(link, job, *[b"u"] * min(500, records - first))
    ]
    client.xreadgroup(keys.GROUP, "node", {job: ">"}, count=records)
    return ids


def finish(
    link: Link,
    job: str,
    *rows: tuple[bytes, str, str, Sequence[Argument]],
    ttl_ms: int = 0,
    why: bytes = b"",
    dead_letters: int = 10,
    dead_letter_bytes: int = 1 << 20,
) -> int:
    """Finish rows, and return how many were finished.

    Rows: entry id, 'hash', 'reply' or 'later', key, and of a hash the fields, else the uri and the packed result. `why`: the
    reason for which the rows become dead letters; empty: they become none.
    """
    streams = list(dict.fromkeys(key for _, kind, key, _ in rows if kind != "hash"))
    hashes = [key for _, kind, key, _ in rows if kind == "hash"]
    dead: list[Argument] = [part for number in range(1, len(rows) + 1) for part in (number, why)] if why else []
    arguments: list[Argument] = [BATCH, len(streams), len(dead) // 2, *dead]
    for entry_id, kind, key, fields in rows:
        where = [0, len(fields)] if kind == "hash" else [(1 if kind == "reply" else -1) * (streams.index(key) + 1)]
        arguments += (entry_id, *where, *fields)
    repeated: list[int] = link.run(
        FINISH,
        [job, keys.dead_key(job), *streams, *hashes],
        [keys.GROUP, ttl_ms, dead_letters, dead_letter_bytes, *arguments],
    )
    return len(rows) - len(repeated)


def left(client: redis.Redis, job: str) -> tuple[int, int]:
    """Entries in the stream, and how many of them are pending."""
    return client.xlen(job), client.xpending(job, keys.GROUP)["pending"]


def test_enqueue_keeps_the_order_and_the_bytes(client: redis.Redis, link: Link, job: str) -> None:
    ids = enqueue(link, job, b"a", b"b", b"\xff")

    assert entries(client, job) == [
        (entry_id, {b"uri": uri, b"tensor:x": b"\x00\xff"})
        for entry_id, uri in zip(ids, [b"a", b"b", b"\xff"], strict=True)
    ]
    assert ids == sorted(set(ids))


def test_enqueue_nothing(client: redis.Redis, link: Link, job: str) -> None:
    assert enqueue(link, job) == []
    assert client.exists(job) == 0


def test_enqueue_admits_what_there_is_room_for(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(keys.limits_key(job), "maxQueueLength", "5")

    taken = [len(enqueue(link, job, *[b"u%d" % n for n in range(first, first + 3)])) for first in (0, 10, 20)]

    assert taken == [3, 2, 0]
    assert [fields[b"uri"] for _, fields in entries(client, job)] == [b"u0", b"u1", b"u2", b"u10", b"u11"]


def test_enqueue_goes_on_when_records_have_left(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(keys.limits_key(job), "maxQueueLength", "2")
    first, _ = enqueue(link, job, b"a", b"b", b"c")

    client.xdel(job, first)

    assert len(enqueue(link, job, b"c", b"d")) == 1


def test_enqueue_into_a_stream_beyond_its_limit(client: redis.Redis, link: Link, job: str) -> None:
    enqueue(link, job, b"a", b"b", b"c")
    client.hset(keys.limits_key(job), "maxQueueLength", "2")

    assert enqueue(link, job, b"d") == []
    assert client.xlen(job) == 3


def test_nobody_sees_what_there_was_no_room_for(client: redis.Redis, link: Link, job: str) -> None:
    """Not even one who waits for new records while they come and go."""
    (first,) = pending(client, link, job, 1)
    client.hset(keys.limits_key(job), "maxQueueLength", "2")
    seen: list[Any] = []

    def wait() -> None:
        reply: Any = client.xreadgroup(keys.GROUP, "node", {job: ">"}, count=10, block=60_000)
        seen.extend(reply[0][1])

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: client.info("clients")["blocked_clients"], "the node waits")

    (second,) = enqueue(link, job, b"b", b"c", b"d")
    waiting.join()

    assert [entry_id for entry_id, _ in seen] == [second]
    assert enqueue(link, job, b"e") == []
    assert [entry_id for entry_id, _ in entries(client, job)] == [first, second]


def test_a_limit_that_is_no_whole_number(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(keys.limits_key(job), "maxQueueLength", "2.5")

    assert len(enqueue(link, job, b"a", b"b", b"c")) == 2
    assert client.xlen(job) == 2


@pytest.mark.parametrize("limit", ["0", "no number"])
def test_without_a_limit_everything_is_admitted(client: redis.Redis, link: Link, job: str, limit: str) -> None:
    client.hset(keys.limits_key(job), "maxQueueLength", limit)

    for _ in range(25):
        assert len(enqueue(link, job, *[b"u"] * 500)) == 500

    assert client.xlen(job) == 12_500


def test_a_job_that_no_node_has_ever_served_has_room_for_some_records(
    client: redis.Redis, link: Link, job: str
) -> None:
    taken = [len(enqueue(link, job, *[b"u"] * 3000)) for _ in range(5)]

    assert taken == [3000, 3000, 3000, 1000, 0]
    client.hset(keys.limits_key(job), "maxQueueLength", "0")
    assert len(enqueue(link, job, b"u")) == 1, "since there is a node"


@pytest.mark.usefixtures("patient")
def test_a_job_that_no_node_has_ever_served_has_room_for_some_bytes(
    redis_server: PrivateRedis, client: redis.Redis, link: Link, job: str
) -> None:
    with InputQueue(port=redis_server.port, name=job, patience_s=0, timeout_s=60) as queue:
        queue.enqueue("first", x=np.zeros(20 << 20, np.float32))
        for _ in range(2):
            with pytest.raises(
                QueueFull, match=f"no node of the job {job} has ever run: 10000 records or 64 MB may wait"
            ):
                queue.enqueue("second", x=np.zeros(1, np.float32))
        client.delete(job)
        queue.enqueue_many((str(n), {"x": np.zeros(1 << 18, np.float32)}) for n in range(48))
        with pytest.raises(QueueFull):
            queue.enqueue_many((str(n), {"x": np.zeros(1 << 18, np.float32)}) for n in range(48))

    assert 40 < client.xlen(job) <= 64, "as Redis counts memory"


def test_finish_answers_each_record_where_it_waits(client: redis.Redis, link: Link, job: str) -> None:
    first, second = pending(client, link, job, 2)
    client.xgroup_create(job + REPLY, "client", "$", mkstream=True)

    finished = finish(
        link,
        job,
        (first, "hash", f"{job}:a", [b"tensor:y", b"\x00\xff", b"receipt", b"{}"]),
        (second, "reply", job + REPLY, [b"b", b"packed"]),
    )

    assert finished == 2
    assert client.hgetall(f"{job}:a") == {b"tensor:y": b"\x00\xff", b"receipt": b"{}"}
    assert [fields for _, fields in entries(client, job + REPLY)] == [{b"batch": BATCH, b"b": b"packed"}]
    assert client.ttl(f"{job}:a") == -1, "a time to live of 0 keeps it"
    assert left(client, job) == (0, 0)


def test_finish_keeps_results_for_later_and_tells_when_all_are_there(client: redis.Redis, link: Link, job: str) -> None:
    first, second, gone = pending(client, link, job, 3)
    later = keys.later_key(job, "0a")
    client.hset(later, mapping={"left": 2, "callback": "https://a.example/"})
    client.pexpire(later, 60_000)

    assert finish(link, job, (first, "later", later, [b"a-0", b"one"])) == 1
    assert (client.hget(later, "left"), client.zscore(keys.CALLBACKS, later)) == (b"1", None)
    rows = [(second, "later", later, [b"a-1", b"two"]), (gone, "later", keys.later_key(job, "0b"), [b"b-0", b"x"])]
    assert finish(link, job, *rows) == 2

    assert client.hmget(later, "left", "finished", "a-0", "a-1") == [b"0", b"1", b"one", b"two"]
    assert 0 < client.pttl(later) <= 60_000
    assert client.zscore(keys.CALLBACKS, later) == 0
    assert client.exists(keys.later_key(job, "0b")) == 0, "a call that was given up leaves nothing behind"
    assert finish(link, job, *rows) == 0
    assert client.hget(later, "finished") == b"1"
    client.zrem(keys.CALLBACKS, later)


def test_the_result_of_a_replayed_letter_takes_the_place_of_the_error(
    client: redis.Redis, link: Link, job: str
) -> None:
    later = keys.later_key(job, "0a")
    client.hset(later, mapping={"left": 1})
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    fields = [b"uri", b"a-0", b"reply", later.encode(), b"deadline", b"+1", b"tensor:x", b"1"]
    admission.enqueue(link, job, Records([fields], []))
    entry, _ = read(client, job)
    finish(link, job, (entry, "later", later, [b"a-0", b"an error"]), why=b"{}")
    ((letter, _),) = entries(client, keys.dead_key(job))

    DeadLetters(link, job).replay(letter.decode(), job)
    entry, replayed = read(client, job)
    finish(link, job, (entry, "later", later, [b"a-0", b"a result"]))

    assert replayed == {b"uri": b"a-0", b"reply": later.encode(), b"tensor:x": b"1"}
    assert client.hmget(later, "left", "a-0") == [b"0", b"a result"]


def read(client: redis.Redis, job: str) -> tuple[bytes, dict[bytes, bytes]]:
    """The next record, as a node reads it."""
    reply: Any = client.xreadgroup(keys.GROUP, "node", {job: ">"}, count=1)
    entry, fields = reply[0][1][0]
    return entry, fields


def test_a_second_finisher_changes_nothing(client: redis.Redis, link: Link, job: str) -> None:
    first, second = pending(client, link, job, 2)
    client.xgroup_create(job + REPLY, "client", "$", mkstream=True)
    reply = (second, "reply", job + REPLY, [b"value", b"first"])
    assert finish(link, job, (first, "hash", f"{job}:a", [b"value", b"first"]), reply) == 2

    again = finish(link, job, (first, "hash", f"{job}:a", [b"value", b"second"]), reply, ttl_ms=50)

    assert again == 0
    assert client.hgetall(f"{job}:a") == {b"value": b"first"}
    assert client.pttl(f"{job}:a") == -1
    assert client.xlen(job + REPLY) == 1


def test_finish_tells_apart_what_others_have_finished(client: redis.Redis, link: Link, job: str) -> None:
    ids = pending(client, link, job, 4)
    client.xack(job, keys.GROUP, ids[1])

    finished = finish(
        link, job, *[(entry_id, "hash", f"{job}:{n}", [b"value", b"1"]) for n, entry_id in enumerate(ids)]
    )

    assert finished == 3
    assert [client.exists(f"{job}:{n}") for n in range(4)] == [1, 0, 1, 1]
    assert [entry_id for entry_id, _ in entries(client, job)] == [ids[1]]


def test_a_record_nobody_has_read_is_not_finished(client: redis.Redis, link: Link, job: str) -> None:
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    (unread,) = enqueue(link, job, b"a")

    assert finish(link, job, (unread, "hash", f"{job}:a", [b"value", b"1"])) == 0
    assert client.exists(f"{job}:a") == 0
    assert client.xlen(job) == 1


def test_a_result_lives_as_long_as_it_is_told(client: redis.Redis, link: Link, job: str) -> None:
    (entry_id,) = pending(client, link, job, 1)

    finish(link, job, (entry_id, "hash", f"{job}:a", [b"value", b"1"]), ttl_ms=60_000)

    assert 50_000 < client.pttl(f"{job}:a") <= 60_000


def test_an_older_result_of_the_same_uri_is_replaced_as_a_whole(client: redis.Redis, link: Link, job: str) -> None:
    """Whatever it was: no field and no time to live of it stays."""
    first, second = pending(client, link, job, 2)
    client.hset(f"{job}:a", mapping={"tensor:old": "1", "value": "old"})
    client.expire(f"{job}:a", 5)
    client.set(f"{job}:b", "no hash")

    finish(link, job, *[(i, "hash", f"{job}:{key}", [b"value", b"new"]) for i, key in ((first, "a"), (second, "b"))])

    assert client.hgetall(f"{job}:a") == client.hgetall(f"{job}:b") == {b"value": b"new"}
    assert client.ttl(f"{job}:a") == -1


def test_a_reply_key_of_the_wrong_type_harms_no_other_row(client: redis.Redis, link: Link, job: str) -> None:
    first, second, third = pending(client, link, job, 3)
    client.set(job + REPLY, "no stream")

    finished = finish(
        link,
        job,
        (first, "hash", f"{job}:a", [b"value", b"1"]),
        (second, "reply", job + REPLY, [b"b", b"2"]),
        (third, "hash", f"{job}:c", [b"value", b"3"]),
    )

    assert finished == 3
    assert client.get(job + REPLY) == b"no stream"
    assert (client.hgetall(f"{job}:a"), client.hgetall(f"{job}:c")) == ({b"value": b"1"}, {b"value": b"3"})
    assert left(client, job) == (0, 0)


def replies(client: redis.Redis, stream: str) -> list[list[bytes]]:
    """The uris of the results in each entry."""
    return [list(fields)[1:] for _, fields in entries(client, stream)]


def test_a_client_gets_the_results_of_a_batch_in_one_entry(client: redis.Redis, link: Link, job: str) -> None:
    """Results of records that somebody else has finished are left out of the entry."""
    ids = pending(client, link, job, 6)
    for name in ("one", "two"):
        client.xgroup_create(job + name, "client", "$", mkstream=True)
    client.xack(job, keys.GROUP, ids[2])

    streams = ["one", "two", "one", "one", "two", "one"]
    finished = finish(
        link,
        job,
        *[(i, "reply", job + name, [b"u%d" % n, b"x"]) for n, (i, name) in enumerate(zip(ids, streams, strict=True))],
    )

    assert finished == 5
    assert replies(client, job + "one") == [[b"u0", b"u3", b"u5"]]
    assert replies(client, job + "two") == [[b"u1", b"u4"]]


@pytest.mark.parametrize(("size", "each"), [(1, 3499), (40_000, 2), (100_000, 1)])
def test_no_entry_of_replies_is_too_long(client: redis.Redis, link: Link, job: str, size: int, each: int) -> None:
    """It has 64 KB and one result more at most, and no more values than Lua can take at once."""
    count = 2 * each + 1
    ids = pending(client, link, job, count)
    client.xgroup_create(job + REPLY, "client", "$", mkstream=True)

    finished = finish(link, job, *[(i, "reply", job + REPLY, [b"%d" % n, b"x" * size]) for n, i in enumerate(ids)])

    found = replies(client, job + REPLY)
    assert finished == count
    assert [len(uris) for uris in found] == [each, each, 1]
    assert [uri for uris in found for uri in uris] == [b"%d" % n for n in range(count)]


def test_a_client_that_has_gone_leaves_nothing_behind(client: redis.Redis, link: Link, job: str) -> None:
    (entry_id,) = pending(client, link, job, 1)

    assert finish(link, job, (entry_id, "reply", job + REPLY, [b"value", b"1"])) == 1
    assert client.exists(job + REPLY) == 0
    assert left(client, job) == (0, 0)


@pytest.mark.parametrize("records", [999, 1000, 1001, 9000])
def test_batches_larger_than_luas_stack(client: redis.Redis, link: Link, job: str, records: int) -> None:
    ids = pending(client, link, job, records)

    finished = finish(
        link, job, *[(entry_id, "hash", f"{job}:{n % 7}", [b"v", b"1"]) for n, entry_id in enumerate(ids)]
    )

    assert finished == records
    assert left(client, job) == (0, 0)


def test_of_two_readers_one_deletes_a_result(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(f"{job}:a", mapping={"value": "1", "receipt": "{}"})

    assert [link.run(DELETE, [f"{job}:a"], ["{}"]) for _ in range(2)] == [[1], [0]]


def test_a_result_that_another_one_has_replaced_stays(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(f"{job}:a", mapping={"value": "2", "receipt": "new"})
    client.hset(f"{job}:b", mapping={"value": "2", "receipt": "new"})

    assert link.run(DELETE, [f"{job}:a", f"{job}:b"], ["old", ""]) == [0, 0]
    assert client.exists(f"{job}:a", f"{job}:b") == 2


def test_delete_many_at_once_and_leave_what_is_no_result(client: redis.Redis, link: Link, job: str) -> None:
    client.hset(f"{job}:a", mapping={"value": "1"})
    client.set(f"{job}:text", "no hash")
    client.xadd(f"{job}:stream", {"no": "hash"})
    client.hset(f"{job}:b", mapping={"value": "2"})
    names = [f"{job}:{name}" for name in ("a", "text", "none", "stream", "b")]

    assert link.run(DELETE, names, [""] * 5) == [1, 0, 0, 0, 1]
    assert sorted(client.keys(f"{job}:*")) == [f"{job}:stream".encode(), f"{job}:text".encode()]


def test_a_redis_that_has_forgotten_the_scripts_is_told_again(client: redis.Redis, link: Link, job: str) -> None:
    client.script_flush()

    assert len(enqueue(link, job, b"a")) == 1
    assert len(enqueue(link, job, b"b")) == 1


def test_a_refused_command_leaves_the_link_usable(client: redis.Redis, link: Link, job: str) -> None:
    client.set(job, "no stream")

    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        enqueue(link, job, b"a")

    assert link.call("PING") == b"PONG"


def test_a_dead_letter_is_the_record_and_why(client: redis.Redis, link: Link, job: str) -> None:
    (entry_id,) = pending(client, link, job, 1)
    result: list[Argument] = [b"error", b"{}"]

    finish(link, job, (entry_id, "hash", f"{job}:u", result), why=b'{"code":"X"}')
    finish(link, job, (entry_id, "hash", f"{job}:u", result), why=b'{"code":"again"}')

    ((_, letter),) = entries(client, keys.dead_key(job))
    assert letter == {b"dead_letter": b'{"code":"X"}', b"uri": b"u", b"tensor:x": b"\x00\xff"}
    assert client.hgetall(f"{job}:u") == {b"error": b"{}"}
    assert left(client, job) == (0, 0)


def test_the_newest_dead_letters_are_kept(client: redis.Redis, link: Link, job: str) -> None:
    ids = pending(client, link, job, 5)

    for entry_id in ids[:4]:
        finish(
            link,
            job,
            (entry_id, "hash", f"{job}:u", [b"error", entry_id]),
            why=b'{"code":"%b"}' % entry_id,
            dead_letters=2,
        )
    finish(link, job, (ids[4], "hash", f"{job}:u", [b"error", b"none"]), why=b'{"code":"none"}', dead_letters=0)

    codes = [letter[b"dead_letter"] for _, letter in entries(client, keys.dead_key(job))]
    assert codes == [b'{"code":"%b"}' % entry_id for entry_id in ids[2:4]]


def die(client: redis.Redis, link: Link, job: str, *fields: bytes, **limits: int) -> None:
    """A record of these fields becomes a dead letter."""
    if not client.exists(job):
        client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    entry_id = link.call("XADD", job, "*", *fields)
    client.xreadgroup(keys.GROUP, "node", {job: ">"})
    assert finish(link, job, (entry_id, "hash", f"{job}:u", [b"error", b"{}"]), why=b'{"code":"X"}', **limits) == 1


def letters_of(link: Link, job: str) -> list[DeadLetter]:
    return list(DeadLetters(link, job).oldest_first())


def test_a_dead_letter_of_very_many_fields_is_cut(client: redis.Redis, link: Link, job: str) -> None:
    die(client, link, job, b"uri", b"u", *[b"v"] * 8000)

    (letter,) = letters_of(link, job)
    assert (letter.uri, letter.cut_bytes) == ("u", 3 + 1 + 8000)
    assert len(letter.fields) == 3500


@pytest.mark.parametrize(("size", "cut"), [(65_000, False), (66_000, True), (5_000_000, True)])
def test_of_a_large_record_the_first_bytes_are_kept(
    client: redis.Redis, link: Link, job: str, size: int, cut: bool
) -> None:
    fields = [b"uri", b"u", b"tensor:x", bytes(range(250)) * (size // 250), b"tensor:y", b"123"]

    die(client, link, job, *fields)

    (letter,) = letters_of(link, job)
    whole = list(zip(fields[::2], fields[1::2], strict=True))
    if not cut:
        assert (letter.fields, letter.cut_bytes) == (whole, 0)
        return
    assert letter.cut_bytes == sum(map(len, fields))
    assert [name for name, _ in letter.fields] == [b"uri", b"tensor:x"]
    assert letter.fields[0] == whole[0]
    assert whole[1][1].startswith(letter.fields[1][1])
    assert sum(len(name) + len(value) for name, value in letter.fields) == 16_384


def test_a_large_name_is_cut_too(client: redis.Redis, link: Link, job: str) -> None:
    die(client, link, job, b"uri", b"u", b"n" * 70_000, b"value", b"", b"")

    (letter,) = letters_of(link, job)
    assert letter.fields == [(b"uri", b"u"), (b"n" * 16_380, b"")]


def test_the_newest_dead_letters_are_kept_within_their_bytes(client: redis.Redis, link: Link, job: str) -> None:
    """Of large and of small ones, and also when the bound becomes smaller."""
    for number in range(60):
        size = 60_000 if number % 3 else 600
        die(client, link, job, b"uri", b"%d" % number, b"tensor:x", b"x" * size, dead_letters=1000)
        used: Any = client.memory_usage(keys.dead_key(job), samples=0)
        assert used <= 1 << 20
    uris = [int(letter.uri) for letter in letters_of(link, job)]
    assert uris == list(range(uris[0], 60))
    assert 16 <= len(uris) <= 40

    die(client, link, job, b"uri", b"60", b"tensor:x", b"x", dead_letters=1000, dead_letter_bytes=100_000)

    left = [int(letter.uri) for letter in letters_of(link, job)]
    assert left == list(range(left[0], 61))
    assert 1 < len(left) <= 4


def test_a_user_who_may_not_ask_for_bytes_keeps_dead_letters(
    client: Any, link: Link, job: str, redis_server: PrivateRedis
) -> None:
    die(client, link, job, b"uri", b"u")
    client.execute_command("ACL", "SETUSER", "old", "on", ">old", "~*", "+@all", "-memory", "-xtrim")
    old = Link(RedisSettings(port=redis_server.port, username="old", password="old"))  # noqa: S106

    for _ in range(3):
        die(client, old, job, b"uri", b"u", b"tensor:x", b"x" * 1000, dead_letter_bytes=1000)

    assert [letter.cut_bytes for letter in letters_of(link, job)] == [0, 1012, 1012, 1012]
    old.close()
    client.execute_command("ACL", "DELUSER", "old")


def test_a_dead_letter_fits_into_a_full_redis(client: redis.Redis, link: Link, job: str) -> None:
    (entry_id,) = pending(client, link, job, 1)
    client.config_set("maxmemory", "1")
    try:
        finish(link, job, (entry_id, "hash", f"{job}:u", [b"error", b"{}"]), why=b'{"code":"X"}')
    finally:
        client.config_set("maxmemory", "0")

    assert client.xlen(keys.dead_key(job)) == 1
    assert client.exists(f"{job}:u")


@pytest.mark.parametrize(("enough", "lost"), [(1, [0]), (2, [0, 2, 3]), (9, [0, 2, 3])])
def test_lost_entries_are_told_until_enough_are_there(
    client: redis.Redis, link: Link, job: str, enough: int, lost: list[int]
) -> None:
    ids = enqueue(link, job, *[b"u"] * 5)
    client.xdel(job, ids[0], ids[2], ids[3])
    inquiry = Inquiry(job, "")

    hope = inquiry.read_hope(link.exchange(*inquiry.for_hope(ids, enough)))

    assert hope.lost == {ids[number] for number in lost}
