"""`durability="majority"`: a record that was accepted is on the replica that takes over; for both kinds of client."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import ConnectionLost, ErrorCode, InputQueue, InvalidValue, keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.protocol import admission
from cluster_serving.client.protocol.durability import check_durability
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.values import encode_record
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.calls import Calls
from support.clients import ROW, AsyncioClient, Client, ThreadClient, answering, in_background
from support.failover import Failover, failover
from support.stopped import stopped
from support.wait import wait_until

RECORD = encode_record("unused", {"x": np.zeros(4, np.float32)})[2:]
NOT_COPIED = re.escape("the master has the records, but not 1 of its replicas (0 in 1 s): a failover now may lose them")

both = pytest.mark.parametrize("kind", [ThreadClient, AsyncioClient])


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Failover]:
    with failover(tmp_path) as both:
        both.wait_for_replica()
        yield both


def uris_after_failover(servers: Failover) -> set[bytes]:
    """The records of the replica once it has taken over from the master that is killed."""
    servers.kill_master()
    wait_until(servers.has_new_master, "the replica has taken over")
    with servers.replica.client() as client:
        return {fields[keys.URI] for _, fields in client.xrange(keys.DEFAULT_JOB)}


@both
def test_what_is_accepted_outlives_the_master(
    kind: Callable[..., Client], servers: Failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(kind(url=servers.url, durability="majority", timeout_s=60)) as client:
        with stopped(servers.replica.pid), pytest.raises(ConnectionLost, match=NOT_COPIED) as caught:
            client.enqueue("unknown")
        monkeypatch.setattr(admission, "WAIT_MS", 30_000)  # the machine may be busy
        client.enqueue("one")
        assert client.enqueue_many(100) == 100

    assert not caught.value.unsent
    assert uris_after_failover(servers) >= {b"one", *(b"r%d" % number for number in range(100))}


def test_predict_of_one_thread_while_another_waits_for_copies(
    servers: Failover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "WAIT_MS", 30_000)
    with (
        InputQueue(url=servers.url, durability="majority", timeout_s=60) as queue,
        servers.master.client() as admin,
        answering(servers.master),
    ):
        queue.predict(ROW)
        is_paused = threading.Event()

        def enqueue() -> None:
            is_paused.wait()
            queue.enqueue("durable", t=ROW)

        with in_background(enqueue), stopped(servers.replica.pid):
            is_paused.set()
            wait_until(lambda: admin.info("clients")["blocked_clients"], "enqueue waits for the replica")

            assert np.array_equal(queue.predict(ROW, timeout=20), ROW)

    assert b"durable" in uris_after_failover(servers)


def test_a_call_that_is_answered_later_outlives_the_master(servers: Failover, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        settings = RedisSettings.parse(servers.url, timeout_s=60)
        sending, copies = AsyncLink(settings), check_durability("majority", settings)
        calls = Calls(settings, sending, keys.DEFAULT_JOB, Timers(1).of(0), copies=copies)
        try:
            with stopped(servers.replica.pid):
                unknown = asyncio.create_task(calls.enqueue([b"unknown"], [RECORD], "elsewhere", 60, b""))
                (result,) = await calls.run([RECORD], 2)  # its caller waits anyway, but for no replica
                with pytest.raises(ConnectionLost, match=NOT_COPIED):
                    await unknown
            monkeypatch.setattr(admission, "WAIT_MS", 30_000)  # the machine may be busy
            await calls.enqueue([b"later"], [RECORD], "elsewhere", 60, b"")
        finally:
            await calls.close()
            await sending.close()
        assert result.error is not None
        assert result.error[0] == ErrorCode.DEADLINE_EXCEEDED

    asyncio.run(scenario())

    assert b"later" in uris_after_failover(servers)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"durability": "all", "url": "redis+sentinel://a/mymaster"}, "durability is 'majority', not 'all'"),
        ({"durability": "majority"}, "durability='majority' needs Sentinels, which know the replicas: url="),
    ],
)
def test_what_cannot_be_is_told_at_once(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(told)):
        InputQueue(**settings)
