"""Records of more fields than Redis' Lua takes at once: refused, and no matter for those that are enqueued beside them."""

import asyncio

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, InvalidValue
from support.private_redis import PrivateRedis

JOB = "many_fields"
ROW = np.zeros(1, np.float32)
MANY = {f"input{n}": ROW for n in range(4000)}


def test_calls_that_share_a_trip_with_one(own_redis: PrivateRedis) -> None:
    async def enqueue() -> tuple[str | BaseException, ...]:
        queue = AsyncInputQueue(port=own_redis.port, name=JOB)
        calls = (queue.enqueue("a", x=ROW), queue.enqueue("many", **MANY), queue.enqueue("b", x=ROW))
        found = await asyncio.gather(*calls, return_exceptions=True)
        await queue.close()
        return found

    first, many, last = asyncio.run(enqueue())

    assert isinstance(first, str)
    assert isinstance(many, InvalidValue)
    assert isinstance(last, str)
    with own_redis.client() as client:
        assert client.xlen(JOB) == 2


def test_one_among_many(own_redis: PrivateRedis) -> None:
    with InputQueue(port=own_redis.port, name=JOB) as queue, own_redis.client() as client:
        with pytest.raises(InvalidValue, match="at most 3500 fields, this one has 4001"):
            queue.enqueue_many([("a", {"x": ROW}), ("many", MANY)])

        assert client.xlen(JOB) == 0, "nothing that the caller has not been told of"


def test_as_many_as_it_may_have(own_redis: PrivateRedis) -> None:
    with InputQueue(port=own_redis.port, name=JOB) as queue, own_redis.client() as client:
        queue.enqueue("most", **dict(list(MANY.items())[:3499]))

        assert client.xlen(JOB) == 1
