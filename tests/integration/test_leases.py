"""Entries that consumers of a group hold, renew, take over and leave behind, in a real Redis."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.node.reader.leases import Leases, leave
from support.private_redis import PrivateRedis
from support.wait import wait_until

JOB = "leases"
LONG_S = 60.0


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[Any]:
    with redis_server.client() as client:
        client.xgroup_create(JOB, keys.GROUP, "0", mkstream=True)
        yield client
        client.delete(JOB)


@pytest.fixture
def leases(client: Any, redis_server: PrivateRedis) -> Iterator[Callable[..., Leases]]:
    link = Link(RedisSettings(port=redis_server.port))

    def leases_of(consumer: str, lease_s: float = LONG_S) -> Leases:
        return Leases(link, JOB, consumer, lease_s)

    yield leases_of
    link.close()


def read(client: Any, consumer: str, count: int) -> list[bytes]:
    """Put so many records on the stream and let a consumer read them; their ids."""
    ids = [client.xadd(JOB, {"uri": str(number)}) for number in range(count)]
    client.xreadgroup(keys.GROUP, consumer, {JOB: ">"}, count=count)
    return ids


def let_a_lease_pass(client: Any, consumer: str, ids: list[bytes]) -> None:
    """Let the holder of entries have been silent for longer than a lease."""
    client.xclaim(JOB, keys.GROUP, consumer, 0, ids, idle=round(2000 * LONG_S), retrycount=1, justid=True)


def holder(client: Any, entry_id: bytes) -> tuple[str, int]:
    """Return the consumer that holds an entry, and how often the entry was delivered."""
    (pending,) = client.xpending_range(JOB, keys.GROUP, entry_id, entry_id, 1)
    return pending["consumer"].decode(), pending["times_delivered"]


def consumers(client: Any) -> set[str]:
    return {consumer["name"].decode() for consumer in client.xinfo_consumers(JOB, keys.GROUP)}


def test_own_entries_are_found_and_taken_again_at_once(client: Any, leases: Callable[..., Leases]) -> None:
    ids = read(client, "a", 600)
    read(client, "b", 1)
    mine = leases("a")

    assert [entry.id for entry in mine.own()] == ids
    taken = mine.claim(ids[:2])

    assert [(entry.id, entry.fields, entry.deliveries) for entry in taken] == [
        (ids[0], [b"uri", b"0"], 1),
        (ids[1], [b"uri", b"1"], 1),
    ]
    assert holder(client, ids[0]) == ("a", 2)


def test_others_are_taken_only_when_they_have_been_silent_for_a_lease(
    client: Any, leases: Callable[..., Leases]
) -> None:
    ids = read(client, "a", 3)

    assert leases("b").stale(10) == []
    assert leases("b").claim(ids) == []
    let_a_lease_pass(client, "a", ids)
    stale = leases("b").stale(10)

    assert [entry.id for entry in stale] == ids
    assert [entry.id for entry in leases("b").claim(ids)] == ids
    assert leases("c").claim(ids) == [], "b has just taken them"
    assert holder(client, ids[0]) == ("b", 2)


def test_what_is_renewed_does_not_become_stale_and_counts_no_delivery(
    client: Any, leases: Callable[..., Leases]
) -> None:
    first, second = ids = read(client, "a", 2)
    let_a_lease_pass(client, "a", ids)

    leases("a").renew([first])

    assert [entry.id for entry in leases("b").stale(10)] == [second]
    assert holder(client, first) == ("a", 1)


def test_a_renewal_takes_nothing_back(client: Any, leases: Callable[..., Leases]) -> None:
    taken_over, finished = read(client, "a", 2)
    let_a_lease_pass(client, "a", [taken_over])
    assert leases("b").claim([taken_over])
    client.xack(JOB, keys.GROUP, finished)

    leases("a").renew([taken_over, finished])

    assert holder(client, taken_over) == ("b", 2)
    assert client.xpending(JOB, keys.GROUP)["pending"] == 1


def test_an_entry_that_was_deleted_is_acknowledged_when_it_is_taken(client: Any, leases: Callable[..., Leases]) -> None:
    deleted, kept = read(client, "a", 2)
    client.xdel(JOB, deleted)

    assert [entry.id for entry in leases("a").claim([deleted, kept])] == [kept]
    assert client.xpending(JOB, keys.GROUP)["pending"] == 1


def test_idle_consumers_that_hold_nothing_are_removed(client: Any, leases: Callable[..., Leases]) -> None:
    read(client, "holds", 1)
    client.xgroup_createconsumer(JOB, keys.GROUP, "idle")

    assert leases("b").prune() == []
    assert wait_until(leases("b", 0.0005).prune, "it has been idle for long") == ["idle"]
    assert consumers(client) == {"holds"}


def test_who_leaves_is_removed_unless_it_still_holds_something(client: Any, leases: Callable[..., Leases]) -> None:
    read(client, "holds", 1)
    for name in ("leaves", "stays"):
        client.xgroup_createconsumer(JOB, keys.GROUP, name)

    leave(client, JOB, ["leaves", "holds"])

    assert consumers(client) == {"holds", "stays"}


def test_leaving_a_group_that_is_gone(client: Any) -> None:
    client.xgroup_destroy(JOB, keys.GROUP)
    leave(client, JOB, ["a"])
    client.delete(JOB)
    leave(client, JOB, ["a"])
    client.set(JOB, "no stream")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        leave(client, JOB, ["a"])
