"""Clients, sync and asyncio, when there is no node, no room, or no Redis any more."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    ConnectionLost,
    InputQueue,
    InvalidValue,
    OutputQueue,
    QueueFull,
    ResultTimeout,
    keys,
)
from support.clients import answering, in_background
from support.private_redis import PrivateRedis, free_port
from support.wait import wait_until

ROW = np.zeros(3, np.float32)


def stop_once_waited_for(server: PrivateRedis) -> threading.Thread:
    """Stop Redis as soon as a client waits for a reply."""

    def stop() -> None:
        with server.client() as client:
            wait_until(lambda: client.info("clients")["blocked_clients"], "a client waits")
        server.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def test_a_waiting_call_is_told_that_redis_has_gone(own_redis: PrivateRedis) -> None:
    own_redis.serve_once(keys.DEFAULT_JOB)
    stopper = stop_once_waited_for(own_redis)
    with InputQueue(port=own_redis.port) as queue, pytest.raises(ConnectionLost, match="redis://localhost"):
        queue.predict(ROW, timeout=30)
    stopper.join()


def test_waiting_asyncio_calls_are_told_that_redis_has_gone(own_redis: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=own_redis.port) as queue:
            calls = [asyncio.create_task(queue.predict(ROW, timeout=30)) for _ in range(3)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3

    own_redis.serve_once(keys.DEFAULT_JOB)
    stopper = stop_once_waited_for(own_redis)
    asyncio.run(run())
    stopper.join()


def test_nobody_listens() -> None:
    port = free_port()

    async def run() -> None:
        async with AsyncInputQueue(port=port, patience_s=0.1) as queue, AsyncOutputQueue(port=port) as output:
            with pytest.raises(ConnectionLost):
                await queue.predict(ROW)
            with pytest.raises(ConnectionLost):
                await queue.enqueue("a", t=ROW)
            with pytest.raises(ConnectionLost):
                await output.query("a")

    asyncio.run(run())
    with pytest.raises(ConnectionLost):
        InputQueue(port=port, patience_s=0.1).enqueue("a", t=ROW)
    with pytest.raises(ConnectionLost):
        OutputQueue(port=port).dequeue()


@pytest.fixture(params=["nothing", "HTTP"])
def no_redis(request: pytest.FixtureRequest) -> Iterator[int]:
    """A port where something that is no Redis answers with HTTP, or answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as accepted:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection = accepted.enter_context(listener.accept()[0])
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        if request.param == "HTTP":
            thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        if request.param == "HTTP":
            thread.join()


@pytest.mark.parametrize("tls", [False, True])
def test_what_is_no_redis_is_told_in_patience(no_redis: int, tls: bool) -> None:
    settings: dict[str, Any] = {"port": no_redis, "patience_s": 2, "ssl": tls}

    async def run(call: Callable[[AsyncInputQueue], Awaitable[Any]]) -> None:
        async with AsyncInputQueue(**settings) as queue:
            await call(queue)

    def call_by_thread(call: Callable[[InputQueue], Any]) -> None:
        with InputQueue(**settings) as queue:
            call(queue)

    begun_s = time.monotonic()
    with ThreadPoolExecutor() as pool:
        calls = [
            pool.submit(call_by_thread, lambda queue: queue.predict(ROW)),
            pool.submit(call_by_thread, lambda queue: queue.enqueue("a", t=ROW)),
            pool.submit(call_by_thread, lambda queue: list(queue.predict_many([ROW]))),
            pool.submit(asyncio.run, run(lambda queue: queue.predict(ROW))),
            pool.submit(asyncio.run, run(lambda queue: queue.enqueue("a", t=ROW))),
        ]
        errors = [call.exception() for call in calls]

    assert time.monotonic() - begun_s < 30  # of a minute, the timeout of a call
    for error in errors:
        assert isinstance(error, ConnectionLost)
        assert re.search("something that is no Redis( with TLS)? answers, or nothing does|SSL", str(error))


@pytest.mark.usefixtures("patient")
def test_asyncio_calls_time_out_and_leave_nothing(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="nobody_async") as queue:
            with pytest.raises(ResultTimeout, match="no node of job nobody_async lives on redis://localhost"):
                await queue.predict(ROW, timeout=0.2)

    asyncio.run(run())
    with redis_server.client() as client:
        assert not client.keys(keys.reply_key("nobody_async", "*"))


@pytest.mark.usefixtures("patient")
def test_a_full_queue_refuses_asyncio_calls(redis_server: PrivateRedis) -> None:
    job = "full_async"

    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name=job, patience_s=0.05) as queue:
            with pytest.raises(QueueFull, match="Redis queue is full"):
                await queue.enqueue_many((str(n), {"t": ROW}) for n in range(10))
            with pytest.raises(QueueFull):
                await queue.predict(ROW)

    with redis_server.client() as client:
        client.hset(keys.limits_key(job), "maxQueueLength", "5")
        asyncio.run(run())
        assert client.xlen(job) == 5


@pytest.mark.usefixtures("patient")
def test_a_sync_predict_that_is_refused_raises_and_the_next_one_works(redis_server: PrivateRedis) -> None:
    job = "full_predict"
    with redis_server.client() as client, InputQueue(port=redis_server.port, name=job, patience_s=0.05) as queue:
        client.hset(keys.limits_key(job), "maxQueueLength", "1")
        queue.enqueue("first", t=ROW)

        with pytest.raises(QueueFull):
            queue.predict(ROW)

        client.hset(keys.limits_key(job), "maxQueueLength", "0")
        with pytest.raises(ResultTimeout):
            queue.predict(ROW, timeout=1)
        assert client.xlen(job) == 2


@pytest.mark.usefixtures("patient")
def test_a_redis_without_memory_is_a_full_queue(redis_server: PrivateRedis) -> None:
    job = "no_memory"
    with redis_server.client() as client:
        client.config_set("maxmemory", "1")
        try:
            with (
                InputQueue(port=redis_server.port, name=job, patience_s=0.05) as queue,
                pytest.raises(QueueFull, match=r"OOM.* memory may be full, try dequeue or delete"),
            ):
                queue.enqueue("a", t=ROW)
        finally:
            client.config_set("maxmemory", "0")


def test_requests_may_come_from_an_asynchronous_source(redis_server: PrivateRedis) -> None:
    async def source() -> AsyncIterator[np.ndarray[tuple[int], np.dtype[np.float32]]]:
        for _ in range(3):
            yield ROW

    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="nobody_source") as queue:
            with pytest.raises(ResultTimeout):
                async for _ in queue.predict_many(source(), timeout=0.2):
                    pass

    asyncio.run(run())


def test_leaving_predict_many_early_leaves_no_task(redis_server: PrivateRedis) -> None:
    async def run() -> None:
        async with AsyncInputQueue(port=redis_server.port, name="nobody_early") as queue:
            answers = queue.predict_many([ROW] * 10, window=5)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(answers)
            await answers.aclose()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@pytest.mark.usefixtures("patient")
def test_as_completed_does_not_wait_for_ever(redis_server: PrivateRedis) -> None:
    with InputQueue(port=redis_server.port, name="nobody_completed") as queue, pytest.raises(ResultTimeout):
        list(queue.as_completed([("a", {"t": ROW}), ("b", {"t": ROW})], timeout=0.2))


def test_as_completed_keeps_one_record_under_way_at_least(redis_server: PrivateRedis) -> None:
    job = "window_0"
    uris: list[str] = []

    def run() -> None:
        with InputQueue(port=redis_server.port, name=job) as queue:
            uris.extend(result.uri for result in queue.as_completed([("a", {"t": ROW}), ("b", {"t": ROW})], window=0))

    with answering(redis_server, job), in_background(run):
        wait_until(lambda: uris == ["a", "b"], "both results", 30)


def test_results_of_as_completed_come_while_a_slow_source_goes_on(redis_server: PrivateRedis) -> None:
    job, asked = "slow_source", list[int]()

    def source() -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(20):
            asked.append(number)
            if number == 10:
                wait_until(lambda: not client.xlen(job), "the first ones are answered")
            time.sleep(0.1)
            yield str(number), {"t": ROW}

    with (
        answering(redis_server, job),
        redis_server.client() as client,
        InputQueue(port=redis_server.port, name=job) as queue,
    ):
        results = queue.as_completed(source())
        next(results)
        assert len(asked) < 20
        assert len(list(results)) == 19


def test_close_ends_a_call_that_waits_for_room(own_redis: PrivateRedis) -> None:
    with own_redis.client() as client, InputQueue(port=own_redis.port, patience_s=30) as queue:
        client.hset(keys.limits_key(queue.name), "maxQueueLength", "1")
        queue.enqueue("first", t=ROW)
        others = len(client.client_list()) - 1

        def run() -> None:
            with pytest.raises(ConnectionLost, match="`close` of the queue"):
                queue.enqueue("second", t=ROW)

        with in_background(run):
            wait_until(lambda: client.info("commandstats")["cmdstat_eval"]["calls"] > 3, "it asks for room again")
            queue.close()
        wait_until(lambda: len(client.client_list()) == others, "no connection of the closed queue", 20)

        client.delete(keys.limits_key(queue.name))
        assert queue.enqueue("third", t=ROW)


def test_close_ends_as_completed(own_redis: PrivateRedis) -> None:
    records = [(str(number), {"t": ROW}) for number in range(4)]
    with own_redis.client() as client, InputQueue(port=own_redis.port) as queue:
        client.hset(keys.limits_key(queue.name), "maxQueueLength", "100")  # there was a node

        def run() -> None:
            with pytest.raises(ConnectionLost):
                list(queue.as_completed(records, timeout=30))

        with in_background(run):
            wait_until(lambda: client.info("clients")["blocked_clients"], "it waits")
            queue.close()

        with answering(own_redis):
            paused = queue.as_completed(records, window=2)
            next(paused)
            queue.close()
            with pytest.raises(ConnectionLost):
                list(paused)
            assert len(list(queue.as_completed(records))) == len(records)


def test_close_ends_enqueue_many_while_its_source_is_read(redis_server: PrivateRedis) -> None:
    def records() -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(100):
            if number == 80:
                queue.close()
            yield str(number), {"t": ROW}

    with InputQueue(port=redis_server.port, name="closed_source") as queue, redis_server.client() as client:
        with pytest.raises(ConnectionLost, match="`close` of the queue") as closed:
            queue.enqueue_many(records())
        assert closed.value.accepted == client.xlen(queue.name) == 64
        assert closed.value.unsent


def test_two_records_of_one_uri_are_not_under_way_at_once(redis_server: PrivateRedis) -> None:
    with InputQueue(port=redis_server.port, name="nobody_twice") as queue, pytest.raises(InvalidValue, match="'a'"):
        list(queue.as_completed([("a", {"t": ROW}), ("a", {"t": ROW})], timeout=0.2))


@pytest.mark.usefixtures("patient")
def test_predict_on_a_full_queue_gives_up_with_its_own_timeout(redis_server: PrivateRedis) -> None:
    job = "full_timeout"
    with redis_server.client() as client, InputQueue(port=redis_server.port, name=job, patience_s=60) as queue:
        client.hset(keys.limits_key(job), "maxQueueLength", "1")
        queue.enqueue("first", t=ROW)

        with pytest.raises(QueueFull):
            queue.predict(ROW, timeout=1)


INTERRUPTED = """
import os, signal, sys
from cluster_serving.client import OutputQueue

def interrupt(*_):
    raise KeyboardInterrupt

redis, output = int(sys.argv[1]), OutputQueue(port=sys.argv[2])
assert output.query("nothing") == "[]"
os.kill(redis, signal.SIGSTOP)
signal.signal(signal.SIGALRM, interrupt)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    output.query("a")
    sys.exit("was not interrupted")
except KeyboardInterrupt:
    pass
finally:
    os.kill(redis, signal.SIGCONT)
assert output.query("b") == "[]"
assert output.query("a") == [[1, 0.5]]
"""


@pytest.mark.usefixtures("unmeasured")
def test_a_reply_that_comes_after_an_interrupt_is_nobody_elses(own_redis: PrivateRedis) -> None:
    """An exception from a signal, while a reply is under way, as Ctrl-C raises it.

    In a process of its own: libraries that other tests load change the stack that signals of this process are handled on.
    """
    with own_redis.client() as client:
        client.hset(keys.result_prefix("serving_stream") + "a", "value", "[[1,0.5]]")

    command = [sys.executable, "-c", INTERRUPTED, str(own_redis.pid), str(own_redis.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_frozen_redis_is_noticed_in_time(own_redis: PrivateRedis) -> None:
    with InputQueue(port=own_redis.port, patience_s=60) as queue:
        with pytest.raises(ResultTimeout):
            queue.predict(ROW, timeout=0.1)
        os.kill(own_redis.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionLost, match="no reply in time"):
                queue.predict(ROW, timeout=0.1)
        finally:
            os.kill(own_redis.pid, signal.SIGCONT)
