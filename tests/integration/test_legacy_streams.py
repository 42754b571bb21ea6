"""Streams of clients before 0.9, in a real Redis."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.node.reader.legacy import LegacyStreams
from support.private_redis import PrivateRedis

pytestmark = pytest.mark.redis
IMAGES, TENSORS = keys.LEGACY_STREAMS
JOB = "old-clients"


@pytest.fixture
def client(redis_server: PrivateRedis) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client
        client.delete(IMAGES, TENSORS, JOB)


@pytest.fixture
def link(redis_server: PrivateRedis) -> Iterator[Link]:
    link = Link(RedisSettings.parse(redis_server.url))
    yield link
    link.close()


def fields(client: redis.Redis, stream: str) -> list[dict[bytes, bytes]]:
    found: Any = client.xrange(stream)
    return [fields for _, fields in found]


def test_entries_move_in_order_with_the_fields_of_a_record(client: redis.Redis, link: Link) -> None:
    client.xadd(JOB, {"uri": "before"})
    client.xadd(IMAGES, {"uri": "a", "image": "A", "path": "a.jpg"})
    client.xgroup_create(IMAGES, keys.GROUP)  # as the old client does
    client.xadd(IMAGES, {"image": "B"})
    client.xadd(IMAGES, {"foreign": "thing"})
    client.xadd(TENSORS, {"uri": "c", "tensor": "C"})

    LegacyStreams(link, JOB).move()

    assert fields(client, JOB) == [
        {b"uri": b"before"},
        {b"uri": b"a", b"image": b"A"},
        {b"image": b"B"},
        {b"uri": b"c", b"tensor": b"C"},
    ]
    assert client.xlen(IMAGES) == client.xlen(TENSORS) == 0


def test_a_long_stream_moves_in_steps_and_is_looked_at_again_at_once(client: redis.Redis, link: Link) -> None:
    for number in range(100):
        client.xadd(IMAGES, {"uri": f"u{number}", "image": "A"})
    streams = LegacyStreams(link, JOB)
    lengths: list[int] = []

    while client.exists(IMAGES) and client.xlen(IMAGES):
        streams.move()
        lengths.append(client.xlen(JOB))

    assert lengths == [64, 100]
    assert [entry[b"uri"] for entry in fields(client, JOB)] == [b"u%d" % number for number in range(100)]


def test_a_job_called_like_an_old_stream_reads_it_itself(client: redis.Redis, link: Link) -> None:
    client.xadd(IMAGES, {"uri": "a", "image": "A"})
    client.xadd(TENSORS, {"uri": "b", "tensor": "B"})

    LegacyStreams(link, IMAGES).move()

    assert [entry[b"uri"] for entry in fields(client, IMAGES)] == [b"a", b"b"]


def test_a_refusal_is_told_and_waited_out(client: redis.Redis, link: Link) -> None:
    client.set(IMAGES, "no stream")
    streams = LegacyStreams(link, JOB)
    before = streams.due

    with capture_logs() as logs:
        streams.move()

    assert (before, streams.due) == (True, False)
    assert [(entry["event"], entry["streams"]) for entry in logs] == [
        ("cannot move records of clients before 0.9", [IMAGES, TENSORS])
    ]
    assert "WRONGTYPE" in logs[0]["reason"]
