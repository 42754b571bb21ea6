"""Until when a node may begin a record: what clients send, on the clock of Redis, and what they make of a refusal."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, ResultTimeout, keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.ring.deadline import deadline_ms
from support.clients import ROW, AsyncioClient, Client, ThreadClient, answer_all, answering, in_background
from support.private_redis import PrivateRedis
from support.wait import wait_until

KINDS = pytest.mark.parametrize("kind", [ThreadClient, AsyncioClient], ids=["threads", "asyncio"])
EXPIRED = {
    keys.ERROR: json.dumps({"code": ErrorCode.DEADLINE_EXCEEDED, "message": "5 ms too late"}).encode(),
    keys.RECEIPT: b"{}",
}


def now_ms(client: Any) -> float:
    """The clock of Redis."""
    seconds, microseconds = client.time()
    return float(seconds * 1000 + microseconds / 1000)


def deadlines(client: Any, job: str) -> list[int | None]:
    """Unix time in ms."""
    return [
        deadline_ms(entry_id, fields[keys.DEADLINE]) if keys.DEADLINE in fields else None
        for entry_id, fields in client.xrange(job)
    ]


@KINDS
@pytest.mark.parametrize("dialect", ["native", "original"])
def test_a_queues_records_have_its_deadline(
    redis_server: PrivateRedis, kind: Callable[..., Client], dialect: str
) -> None:
    job = f"deadline_{dialect}_{kind.__name__}"
    queue = kind(port=redis_server.port, name=job, dialect=dialect, deadline_s=60)
    with redis_server.client() as client:
        begun_ms = now_ms(client)
        queue.enqueue("a")
        queue.enqueue_many(100)
        ended_ms = now_ms(client)
        found = [deadline or 0 for deadline in deadlines(client, job)]
    queue.close()

    assert len(found) == 101
    # What the client does before it sends counts too: the milliseconds are floored once and rounded once.
    assert begun_ms + 59_000 < min(found) <= max(found) <= ended_ms + 60_001


@KINDS
def test_without_one_a_record_has_no_deadline(redis_server: PrivateRedis, kind: Callable[..., Client]) -> None:
    job = f"no_deadline_{kind.__name__}"
    queue = kind(port=redis_server.port, name=job)
    queue.enqueue("a")
    queue.enqueue_many(3)
    queue.close()
    with redis_server.client() as client:
        assert deadlines(client, job) == [None] * 4


@KINDS
def test_a_call_that_ends_by_its_timeout_wants_no_answer_later(
    redis_server: PrivateRedis, kind: Callable[..., Client]
) -> None:
    job = f"call_deadline_{kind.__name__}"
    queue = kind(port=redis_server.port, name=job)
    with answering(redis_server, job):
        queue.predict()  # connects, so that a call has time to send its records
    with redis_server.client() as client:
        for call in (lambda: queue.predict(4), lambda: queue.predict_many(3, 4)):
            begun_ms = now_ms(client)
            with pytest.raises(ResultTimeout):
                call()
            ended_ms = now_ms(client)
            found = [deadline or 0 for deadline in deadlines(client, job)]
            sent_ms = int(client.xrevrange(job, count=1)[0][0].partition(b"-")[0])
            client.delete(job)

            assert found
            # The time on the way to Redis counts too, and the milliseconds are rounded.
            assert all(begun_ms < deadline <= ended_ms + (sent_ms - begun_ms) + 2 for deadline in found)
    queue.close()


@KINDS
def test_a_call_whose_deadline_passed_has_timed_out(redis_server: PrivateRedis, kind: Callable[..., Client]) -> None:
    """The node's refusal may come before the client's own time is over, and is the same to whoever called."""
    job = f"passed_{kind.__name__}"
    redis_server.serve_once(job)
    queue = kind(port=redis_server.port, name=job)

    def refuse() -> None:
        with redis_server.client() as client:
            wait_until(lambda: answer_all(client, job, EXPIRED), "the record is there")

    with in_background(refuse), pytest.raises(ResultTimeout, match=r"^no result in time; the node says: 5 ms too late"):
        queue.predict(30)
    with in_background(refuse), pytest.raises(ResultTimeout, match=r"^no result of 'request 0' in time; the node says"):
        queue.predict_many(1, 30)
    queue.close()


def test_calls_of_different_timeouts_share_a_trip(redis_server: PrivateRedis) -> None:
    job = "deadline_gathered"

    async def run(client: Any) -> list[int | None]:
        async with AsyncInputQueue(port=redis_server.port, name=job) as queue:
            await queue.enqueue("first", t=ROW)
            calls = [asyncio.create_task(queue.predict(ROW, timeout)) for timeout in (100, 200)]
            while client.xlen(job) < 3:
                await asyncio.sleep(0.01)
            for call in calls:
                call.cancel()
            return deadlines(client, job)

    with redis_server.client() as client:
        begun_ms = now_ms(client)
        none, soon, late = asyncio.run(run(client))

    assert none is None
    assert begun_ms + 50_000 < (soon or 0) < begun_ms + 150_000 < (late or 0) < begun_ms + 250_000


def test_as_completed_gives_what_expired_as_a_failed_result(redis_server: PrivateRedis) -> None:
    job = "deadline_completed"
    redis_server.serve_once(job)

    def refuse() -> None:
        with redis_server.client() as client:
            wait_until(lambda: answer_all(client, job, EXPIRED), "the record is there")

    with InputQueue(port=redis_server.port, name=job, deadline_s=30) as queue, in_background(refuse):
        (result,) = queue.as_completed([("a", {"t": np.zeros(3, np.float32)})])

    assert result.error == (ErrorCode.DEADLINE_EXCEEDED, "5 ms too late")
