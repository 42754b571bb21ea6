"""Uris that clients make: no key tells them, because `SCAN` shows every key to every user."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, ResultTimeout, keys
from support.private_redis import PrivateRedis

ROW = {"x": np.zeros(3, np.float32)}


def predicts(job: str, port: int) -> None:
    with InputQueue(port=port, name=job) as queue, pytest.raises(ResultTimeout):
        queue.predict(ROW, timeout=0.2)


def predicts_many(job: str, port: int) -> None:
    with InputQueue(port=port, name=job) as queue:
        for _ in range(2):
            with suppress(ResultTimeout):
                list(queue.as_completed([("own", ROW)], timeout=0.1))
        with suppress(ResultTimeout):
            list(queue.predict_many([ROW] * 3, timeout=0.2))


def awaits(job: str, port: int) -> None:
    async def scenario() -> None:
        async with AsyncInputQueue(port=port, name=job) as queue:
            with pytest.raises(ResultTimeout):
                await queue.predict(ROW, timeout=30)  # ends sooner, as there is no node

    asyncio.run(scenario())


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("call", [predicts, predicts_many, awaits])
def test_no_key_tells_the_uris_of_a_client(redis_server: PrivateRedis, call: Callable[[str, int], None]) -> None:
    job = f"uris_{call.__name__}"
    call(job, redis_server.port)

    with redis_server.client() as client:
        entries = [fields for _, fields in client.xrange(job)]
    uris = {fields[keys.URI].decode() for fields in entries} - {"own"}
    streams = b" ".join(fields[keys.REPLY] for fields in entries).decode()
    (secret,) = {uri.rpartition("-")[0] for uri in uris}
    assert len(bytes.fromhex(secret)) == 8
    assert secret not in streams
    assert len(set(streams.split())) == (3 if call is predicts_many else 1)
