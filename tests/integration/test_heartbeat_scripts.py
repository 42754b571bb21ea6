"""Lua scripts of the heartbeat, in a real Redis: its figures of the queue, and its entry in the list of nodes."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from cluster_serving.client import keys
from cluster_serving.node.supervisor.heartbeat import HEARTBEAT, LISTING
from support.private_redis import PrivateRedis

_jobs = count()


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[Any]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def job() -> str:
    return f"beats-{next(_jobs)}"


def told(client: Any, job: str) -> dict[str, Any]:
    """Return the fields that the script adds to a heartbeat that begins with the node's name."""
    names = (keys.node_key(job, "n"), keys.limits_key(job), keys.full_key(job), job, keys.dead_key(job))
    client.eval(HEARTBEAT, len(names), *names, b'{"node":"n"', 60_000, 0, "", keys.GROUP)
    beat: dict[str, Any] = json.loads(client.get(names[0]))
    assert beat.pop("node") == "n"
    return beat


def add_aged(client: Any, job: str, age_s: float, number: int = 0) -> bytes:
    """An entry that was made so long ago; its id."""
    seconds, microseconds = client.time()
    made_ms = seconds * 1000 + microseconds // 1000 - round(1000 * age_s)
    entry_id: bytes = client.xadd(job, {"uri": "u"}, id=f"{made_ms}-{number}")
    return entry_id


def read(client: Any, job: str, records: int = 1) -> None:
    client.xreadgroup(keys.GROUP, "node", {job: ">"}, count=records)


def test_without_a_stream_there_is_nothing_to_tell(client: Any, job: str) -> None:
    assert told(client, job) == {"backlog": 0, "oldest_ms": 0, "dead_letters": 0}


def test_an_empty_stream_has_no_oldest(client: Any, job: str) -> None:
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)

    assert told(client, job) == {"backlog": 0, "oldest_ms": 0, "dead_letters": 0}


@pytest.mark.parametrize("with_group", [True, False])
def test_the_oldest_may_not_have_been_read(client: Any, job: str, with_group: bool) -> None:
    if with_group:
        client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    add_aged(client, job, 1000)
    add_aged(client, job, 10)

    beat = told(client, job)

    assert beat["backlog"] == 2
    assert 1_000_000 <= beat["oldest_ms"] < 1_100_000


def test_the_oldest_may_be_pending(client: Any, job: str) -> None:
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    first = add_aged(client, job, 1000)
    add_aged(client, job, 500)
    add_aged(client, job, 10)
    read(client, job, 2)

    assert 1_000_000 <= told(client, job)["oldest_ms"] < 1_100_000
    client.xack(job, keys.GROUP, first)
    client.xdel(job, first)

    beat = told(client, job)

    assert beat["backlog"] == 2
    assert 500_000 <= beat["oldest_ms"] < 600_000


def test_what_is_pending_and_deleted_is_nobodys_age(client: Any, job: str) -> None:
    client.xgroup_create(job, keys.GROUP, "0", mkstream=True)
    gone = add_aged(client, job, 1000)
    read(client, job)
    client.xdel(job, gone)

    assert told(client, job) == {"backlog": 0, "oldest_ms": 0, "dead_letters": 0}


@pytest.mark.parametrize("entry_id", ["99999999999999-0", "1-1"])
def test_an_id_that_a_client_has_chosen_is_no_age(client: Any, job: str, entry_id: str) -> None:
    client.xadd(job, {"uri": "u"}, id=entry_id)

    assert told(client, job) == {"backlog": 1, "oldest_ms": 0, "dead_letters": 0}


def test_dead_letters_are_counted(client: Any, job: str) -> None:
    for _ in range(3):
        client.xadd(keys.dead_key(job), {"dead_letter": "{}"})

    assert told(client, job)["dead_letters"] == 3


def test_keys_that_are_no_streams_do_not_keep_a_node_silent(client: Any, job: str) -> None:
    client.set(job, "no stream")
    client.set(keys.dead_key(job), "no stream")

    assert told(client, job) == {"backlog": 0, "oldest_ms": 0, "dead_letters": 0}


def test_a_full_redis_takes_heartbeats(client: Any, job: str) -> None:
    add_aged(client, job, 10)
    client.config_set("maxmemory", "1")
    try:
        beat = told(client, job)
        client.eval(LISTING, 1, f"names-{job}", "key")
    finally:
        client.config_set("maxmemory", "0")

    assert beat["backlog"] == 1
    assert client.zrange(f"names-{job}", 0, -1) == [b"key"]


def test_who_has_been_silent_for_an_hour_is_listed_no_more(client: Any, job: str) -> None:
    names = f"names-{job}"
    seconds, _ = client.time()
    client.zadd(names, {"silent": seconds - 3700, "lately": seconds - 3500})

    client.eval(LISTING, 1, names, "me")

    assert client.zrange(names, 0, -1) == [b"lately", b"me"]
    assert client.zscore(names, "me") == pytest.approx(seconds, abs=60)
