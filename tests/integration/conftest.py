"""Marks and fixtures for the tests of one part and Redis."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads import input_queue
from cluster_serving.client.threads.link import Link
from support.clients import AsyncioClient, Client, Connect, ThreadClient
from support.private_redis import PrivateRedis

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `make test-redis` take what asks for a server."""
    for item in items:
        if HERE in item.path.parents and not {"models", "squeezenet"} & set(item.path.stem.split("_")):
            item.add_marker(pytest.mark.redis)


@pytest.fixture
def whole_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`predict_many` sends whole chunks, also where the machine is busy and a source seems slow."""
    monkeypatch.setattr(input_queue, "_SLOW_S", 60.0)


@pytest.fixture
def long_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a thread waits for its result in one read, and not in one a second: what the test does falls into a read."""
    monkeypatch.setattr("cluster_serving.client.threads.replies.Replies._read_for_all.__defaults__", (60.0, None))


@pytest.fixture(params=[ThreadClient, AsyncioClient], ids=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one kind, and closes them."""
    made: list[Client] = []

    def make(**settings: Any) -> Client:
        made.append(request.param(**settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def link(redis_server: PrivateRedis) -> Iterator[Link]:
    """A link to the server that tests share."""
    link = Link(RedisSettings(port=redis_server.port))
    yield link
    link.close()
