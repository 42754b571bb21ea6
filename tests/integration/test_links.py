"""Connections that are left in the middle of a call, closed beside calls, or moved by a failover; for threads and asyncio."""

import asyncio
import gc
import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis

from cluster_serving.client import AsyncOutputQueue, ConnectionLost, InputQueue, OutputQueue, keys
from cluster_serving.client.threads.link import Link
from support.clients import ROW, AsyncioClient, ThreadClient, answering, in_background
from support.private_redis import PrivateRedis, free_port
from support.wait import wait_until

CLIENTS = pytest.mark.parametrize("kind", [ThreadClient, AsyncioClient])


@pytest.fixture(scope="module", autouse=True)
def no_garbage() -> None:
    """Unfinished calls of other tests end now: later the collector would end them through connections that are patched here."""
    gc.collect()


@pytest.fixture
def served_redis(own_redis: PrivateRedis) -> PrivateRedis:
    """A Redis of its own with a job that a node has served, so that a call waits for its whole time."""
    own_redis.serve_once(keys.DEFAULT_JOB)
    return own_redis


def test_a_reply_that_nobody_has_read_is_not_taken_for_the_next(link: Link) -> None:
    """An interrupted call leaves its replies behind."""
    assert link.call("ECHO", "first") == b"first"
    assert link.send(("ECHO", "a"), ("ECHO", "b")) == 2
    assert link.read() == b"a"
    assert link.due == 1

    assert link.call("ECHO", "c") == b"c"

    assert (link.due, link.connections) == (0, 2)


def test_a_reply_to_nothing_is_an_error(link: Link) -> None:
    for _ in range(2):
        with pytest.raises(ConnectionLost):
            link.read()
        assert link.call("ECHO", "a") == b"a"


def test_a_link_that_was_shut_down_connects_anew(link: Link) -> None:
    assert link.call("ECHO", "a") == b"a"
    link.shut_down()
    assert link.call("ECHO", "b") == b"b"
    assert link.connections == 2


def test_interrupts_while_connecting_use_nothing_up(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool of redis-py would count each connection that an interrupt kept from being made."""
    begun = list[redis.Connection]()
    connect: Any = redis.Connection.connect

    def interrupted(connection: redis.Connection) -> None:
        connect(connection)
        begun.append(connection)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(redis.Connection, "connect", interrupted)
        for _ in range(150):
            with pytest.raises(KeyboardInterrupt):
                link.call("ECHO", "a")

    assert [connection for connection in begun if connection.is_connected] == []
    assert link.call("ECHO", "b") == b"b"


@pytest.fixture
def closers(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Threads that have closed an open connection."""
    found = list[threading.Thread]()
    disconnect: Any = redis.Connection.disconnect

    def recorded(connection: redis.Connection, *args: Any) -> None:
        if connection.is_connected:  # and not the garbage of another test
            found.append(threading.current_thread())
        disconnect(connection, *args)

    monkeypatch.setattr(redis.Connection, "disconnect", recorded)
    return found


def test_a_connection_is_closed_by_the_call_under_way_and_not_beside_it(
    link: Link, closers: list[threading.Thread]
) -> None:
    """The number of a closed socket may be that of another file by the time the call reads."""

    def wait() -> None:
        with pytest.raises(ConnectionLost):
            link.call("BLPOP", "a list that nobody fills", "0")

    with in_background(wait):
        wait_until(lambda: link.due < 0, "the call waits")
        link.shut_down()

    assert closers
    assert threading.current_thread() not in closers


@pytest.mark.usefixtures("long_reads")
def test_close_of_a_queue_leaves_the_connection_to_the_call_that_waits(
    served_redis: PrivateRedis, closers: list[threading.Thread]
) -> None:
    queue, waiting = InputQueue(port=served_redis.port), list[threading.Thread]()

    def ask() -> None:
        waiting.append(threading.current_thread())
        with pytest.raises(ConnectionLost):
            queue.predict(ROW, timeout=60)

    with in_background(ask), served_redis.client() as admin:
        wait_until(lambda: admin.info("clients")["blocked_clients"], "the call waits")
        queue.close()

    assert waiting[0] in closers


def test_no_socket_stays_open_when_a_link_is_shut_down_beside_its_last_call(link: Link) -> None:
    """Shut down at many instants of a call: the call may still end well, and then nobody uses the link again."""
    for instant in range(300):
        link.call("ECHO", "a")
        number = link.fileno()
        connection = os.fstat(number).st_ino
        over = threading.Event()

        def call(over: threading.Event = over) -> None:
            with suppress(ConnectionLost):
                while not over.is_set():
                    link.call("ECHO", "b")

        with in_background(call):
            over.wait(instant % 40 * 2e-5)
            over.set()
            link.shut_down()

        with suppress(OSError):
            assert os.fstat(number).st_ino != connection, f"open after shut_down {instant}"


@CLIENTS
def test_a_call_that_a_failover_unblocks_has_lost_its_connection(served_redis: PrivateRedis, kind: Any) -> None:
    client = kind(port=served_redis.port)

    def unblock() -> bool:
        """Unblock a client that waits, unless its wait ends meanwhile."""
        waiting = [int(each["id"]) for each in admin.client_list() if "b" in each["flags"]]
        return any(admin.client_unblock(number, error=True) for number in waiting)

    with (
        served_redis.client() as admin,
        in_background(lambda: wait_until(unblock, "a client that waits is unblocked")),
        pytest.raises(ConnectionLost, match="UNBLOCKED") as raised,
    ):
        client.predict(timeout=30)

    assert not raised.value.unsent
    client.close()


@CLIENTS
def test_a_user_who_may_delete_nothing_can_close(served_redis: PrivateRedis, kind: Any) -> None:
    with served_redis.client() as admin:
        admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-del")
    client = kind(port=served_redis.port, username="u", password="p")  # noqa: S106 - of this test alone

    with answering(served_redis):
        client.predict()

    client.close()


def test_close_ends_waiting_calls_with_one_error(served_redis: PrivateRedis) -> None:
    queue, outcomes = InputQueue(port=served_redis.port), list[BaseException]()

    def ask() -> None:
        try:
            queue.predict(ROW, timeout=30)
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    with served_redis.client() as admin:
        wait_until(lambda: admin.xlen(keys.DEFAULT_JOB) == 4, "all are sent")
        queue.close()
    for thread in threads:
        thread.join(120)

    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 4


def test_close_beside_calls(served_redis: PrivateRedis) -> None:
    """Each call succeeds, or raises ConnectionLost."""
    queue, output, over = InputQueue(port=served_redis.port), OutputQueue(port=served_redis.port), threading.Event()
    kinds = Counter[str]()

    def repeat(call: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            while not over.is_set():
                try:
                    call()
                except ConnectionLost:
                    kinds["lost"] += 1

        return run

    calls = [
        lambda: queue.predict(ROW, timeout=60),
        lambda: queue.predict(ROW, timeout=60),
        lambda: list(queue.predict_many([ROW] * 30, timeout=60)),
        lambda: queue.enqueue("a", t=ROW),
        lambda: output.query("a"),
        output.dequeue,
    ]
    with answering(served_redis), ExitStack() as threads:
        for call in calls:
            threads.enter_context(in_background(repeat(call)))
        try:
            while kinds["lost"] < 100:
                queue.close()
                output.close()
                over.wait(0.003)
        finally:
            over.set()

    queue.close()
    output.close()


def query(port: int) -> None:
    with OutputQueue(port=port) as output:
        output.query("a")


def query_by_asyncio(port: int) -> None:
    async def run() -> None:
        async with AsyncOutputQueue(port=port) as output:
            await output.query("a")

    asyncio.run(run())


def predict(port: int) -> None:
    with InputQueue(port=port, patience_s=0) as queue:
        queue.predict(ROW)


@pytest.mark.parametrize("call", [query, query_by_asyncio, predict])
def test_a_refused_connection_has_a_short_traceback(call: Callable[[int], None]) -> None:
    with pytest.raises(ConnectionLost, match="Error 111 connecting") as raised:
        call(free_port())

    told = "".join(traceback.format_exception(raised.value))
    assert "redis/" not in told
    assert len(told.splitlines()) < 50
