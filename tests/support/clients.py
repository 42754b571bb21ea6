"""Both kinds of client behind one face, and something that answers them: the same test for threads and for asyncio."""

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
import redis

from cluster_serving.client import AsyncInputQueue, InputQueue, keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.reply import pack
from cluster_serving.client.wire.tensors import encode_tensor
from support.private_redis import PrivateRedis

ROW = np.zeros(3, np.float32)
ANSWER = {keys.TENSOR + b"y": encode_tensor(ROW)}


class Client(Protocol):
    """Client of either kind, as far as the tests use it."""

    def enqueue(self, uri: str, row: Any = ROW) -> str:
        """`enqueue` of one row."""
        ...

    def enqueue_many(self, count: int) -> int:
        """`enqueue_many` of rows r0, r1, ..."""
        ...

    def predict(self, timeout: float = 10) -> Any:
        """`predict` of one row."""
        ...

    def predict_many(self, count: int, timeout: float = 10) -> list[Any]:
        """`predict_many` of rows."""
        ...

    def close(self) -> None:
        """`close`."""
        ...


Connect = Callable[..., Client]
"""Makes a client with settings, as the fixture `connect` does."""


class ThreadClient:
    """An `InputQueue`."""

    def __init__(self, **settings: Any) -> None:
        self._queue = InputQueue(**settings)

    def enqueue(self, uri: str, row: Any = ROW) -> str:
        """One record."""
        return self._queue.enqueue(uri, t=row)

    def enqueue_many(self, count: int) -> int:
        """Many records."""
        return self._queue.enqueue_many((f"r{n}", {"t": ROW}) for n in range(count))

    def predict(self, timeout: float = 10) -> Any:
        """One call."""
        return self._queue.predict(ROW, timeout)

    def predict_many(self, count: int, timeout: float = 10) -> list[Any]:
        """Many calls."""
        return list(self._queue.predict_many([ROW] * count, timeout))

    def close(self) -> None:
        """End it."""
        self._queue.close()


class AsyncioClient:
    """An `AsyncInputQueue`, whose event loop sleeps between two calls."""

    def __init__(self, **settings: Any) -> None:
        self._runner = asyncio.Runner()
        self._queue = AsyncInputQueue(**settings)

    def enqueue(self, uri: str, row: Any = ROW) -> str:
        """One record."""
        return self._runner.run(self._queue.enqueue(uri, t=row))

    def enqueue_many(self, count: int) -> int:
        """Many records."""
        return self._runner.run(self._queue.enqueue_many((f"r{n}", {"t": ROW}) for n in range(count)))

    def predict(self, timeout: float = 10) -> Any:
        """One call."""
        return self._runner.run(self._queue.predict(ROW, timeout))

    def predict_many(self, count: int, timeout: float = 10) -> list[Any]:
        """Many calls."""

        async def collect() -> list[Any]:
            return [answer async for answer in self._queue.predict_many([ROW] * count, timeout)]

        return self._runner.run(collect())

    def close(self) -> None:
        """End it."""
        self._runner.run(self._queue.close())
        self._runner.close()


def replied(uri: bytes, result: dict[bytes, bytes]) -> dict[Any, Any]:
    """The entry of a reply stream with one result, as a node writes it."""
    return {keys.BATCH: b'{"node":"n"}', uri: pack(b"1-0", 1.0, 1, [part for pair in result.items() for part in pair])}


def answer_all(client: Any, job: str, result: dict[bytes, bytes] = ANSWER) -> int:
    """Answer every record of a job that waits for its reply, as a node does; how many there were."""
    entries = client.xrange(job)
    for entry_id, fields in entries:
        if keys.REPLY in fields:
            client.xadd(fields[keys.REPLY], replied(fields[keys.URI], result), nomkstream=True)
            client.xdel(job, entry_id)
    return len(entries)


@contextmanager
def answering(server: PrivateRedis, job: str = keys.DEFAULT_JOB) -> Generator[None]:
    """Answer a job's records for a block, whatever happens to Redis. Calls wait for the answers as for those of a node."""
    over = threading.Event()
    with suppress(redis.RedisError), RedisSettings(port=server.port).client() as once:
        once.hsetnx(keys.limits_key(job), "maxQueueLength", "0")

    def run() -> None:
        with server.client() as client:
            while not over.wait(0.01):
                with suppress(redis.RedisError):
                    answer_all(client, job)

    with in_background(run):
        try:
            yield
        finally:
            over.set()


@contextmanager
def in_background(run: Callable[[], Any]) -> Generator[None]:
    """Run something beside a block, and wait for it at the end; its error is raised there."""
    errors: list[BaseException] = []

    def body() -> None:
        try:
            run()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not thread.is_alive(), "it goes on and on"
