"""Redis behind Sentinels that hang, want a login or TLS, know no master or another one; for both kinds of client."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, ConnectionLost, InputQueue, OutputQueue
from cluster_serving.client.aio.master_connection import AsyncMasterConnection
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.sentinels import master
from cluster_serving.client.threads.link import Link
from support.certificates import tls_of_redis, write_certificates
from support.clients import in_background
from support.failover import HASTY_MS, Failover, failover, sentinel
from support.private_redis import PrivateRedis, free_port, private_redis
from support.stopped import stopped
from support.wait import wait_until

ROW = np.zeros(3, np.float32)
SECRET = "s3cr3t"  # noqa: S105 - of a test's own Sentinel


def query(**settings: Any) -> Any:
    """Ask for a result over a new connection, from a thread."""
    with OutputQueue(**settings) as output:
        return output.query("a")


def query_by_asyncio(**settings: Any) -> Any:
    """Ask for a result over a new connection, from asyncio."""

    async def run() -> Any:
        async with AsyncOutputQueue(**settings) as output:
            return await output.query("a")

    return asyncio.run(run())


Query = Callable[..., Any]
both = pytest.mark.parametrize("query", [query, query_by_asyncio])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentinels have time to answer where the machine is busy."""
    monkeypatch.setattr(master, "_ANSWER_S", 60.0)


@both
def test_records_get_through(query: Query, own_redis: PrivateRedis, tmp_path: Path) -> None:
    with sentinel(tmp_path, own_redis.port) as watching:
        assert query(url=watching.url) == "[]"


def test_a_connection_that_was_cut_is_whole_once_it_is_connected_anew(own_redis: PrivateRedis, tmp_path: Path) -> None:
    async def run(settings: RedisSettings) -> None:
        connection: Any = AsyncMasterConnection(**settings.options())
        await connection.connect()
        connection.cut()
        was_cut = connection.is_cut
        await connection.disconnect(nowait=True)
        await connection.connect()
        assert (was_cut, connection.is_cut) == (True, False)
        await connection.disconnect(nowait=True)

    with sentinel(tmp_path, own_redis.port) as watching:
        asyncio.run(run(RedisSettings.parse(watching.url)))


@both
def test_a_sentinel_that_hangs_is_waited_for_once_and_briefly(
    query: Query, own_redis: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "_ANSWER_S", 4.0)
    with sentinel(tmp_path, own_redis.port) as first, sentinel(tmp_path, own_redis.port) as second, stopped(first.pid):
        url = f"redis+sentinel://127.0.0.1:{first.port},127.0.0.1:{second.port}/mymaster"
        begun_s = time.monotonic()
        for _ in range(10):  # 4 s each, if nothing were learned; redis-py by itself: a minute each
            assert query(url=url) == "[]"

        assert time.monotonic() - begun_s < 35


@both
@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({}, "127.0.0.1:{} wants a password: sentinelPassword, or sentinel_password in a program ("),
        ({"sentinel_password": "wr0ng"}, "127.0.0.1:{} refused the login: sentinelPassword, or "),
        ({"sentinel_username": "nobody", "sentinel_password": SECRET}, "127.0.0.1:{} refused the login: "),
    ],
)
def test_a_sentinel_with_a_password(query: Query, told: dict[str, str], why: str, tmp_path: Path) -> None:
    lines = f"requirepass {SECRET}", "sentinel auth-pass mymaster other"
    with (
        private_redis(tmp_path, "--requirepass", "other") as server,
        sentinel(tmp_path, server.port, *lines, password=SECRET) as watching,
    ):
        login = {"url": watching.url, "password": "other"}
        assert query(**login, sentinel_password=SECRET) == "[]"

        with pytest.raises(ConnectionLost) as caught:
            query(**login, **told)

    assert why.format(watching.port) in str(caught.value)
    assert not {"wr0ng", SECRET} & set(str(caught.value).split())


def test_a_refused_login_is_not_tried_again_and_again(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with (
        sentinel(tmp_path, own_redis.port, f"requirepass {SECRET}", password=SECRET) as watching,
        InputQueue(url=watching.url, patience_s=60) as queue,
    ):
        begun_s = time.monotonic()
        with pytest.raises(ConnectionLost, match="wants a password"):
            queue.enqueue("a", t=ROW)

        assert time.monotonic() - begun_s < 20


@both
def test_tls_is_for_sentinels_too(query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_certificates(tmp_path)
    port, tls_port = free_port(), free_port()
    tls = {key: value for key, value in tls_of_redis(tmp_path, port).items() if key != "tls-port"}
    options = [part for key, value in tls_of_redis(tmp_path, port).items() for part in (f"--{key}", value)]
    try:
        server = PrivateRedis(tmp_path, *options)
    except AssertionError:
        pytest.skip("this redis-server was built without TLS")
    lines = [f"{key} {value}" for key, value in tls.items()]
    ca = {"ssl_ca_certs": str(tmp_path / "cert.pem")}
    try:
        with sentinel(tmp_path, port, *lines, f"tls-port {tls_port}", "tls-replication yes") as watching:
            plain, secure = f"127.0.0.1:{watching.port}/mymaster", f"rediss+sentinel://127.0.0.1:{tls_port}/mymaster"

            assert query(url=secure, **ca) == "[]"
            assert query(url=f"redis+sentinel://{plain}", ssl=True, **ca) == "[]"
            with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
                query(url=secure)
            with pytest.raises(ConnectionLost, match=r"closed the connection; rediss\+sentinel:// asks with TLS"):
                query(url=secure.replace("rediss", "redis"))
            monkeypatch.setattr(master, "_ANSWER_S", 0.5)
            with pytest.raises(ConnectionLost, match=r"did not answer in 0\.5 s with TLS; redis\+sentinel:// asks"):
                query(url=f"rediss+sentinel://{plain}", **ca)
    finally:
        server.stop()


@both
def test_the_reason_is_told_why_no_sentinel_names_a_master(
    query: Query, own_redis: PrivateRedis, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with sentinel(tmp_path, own_redis.port) as watching:
        with pytest.raises(
            ConnectionLost, match=f"named other .{nobody} .*refused.; 127.* knows no master of that name"
        ):
            query(url=f"redis+sentinel://{nobody},127.0.0.1:{watching.port}/other")
        own_redis.stop()
        watching.take_for_down(HASTY_MS)
        with watching.client() as client:
            # For good: an attempt to connect, one a second, lets a Sentinel doubt for half a second that the master is down.
            wait_until(
                lambda: client.sentinel_master("mymaster").get("s-down-time", 0) > 1000, "the Sentinel has noticed"
            )

        with pytest.raises(ConnectionLost, match=f"127.0.0.1:{watching.port} says that the master is down"):
            query(url=watching.url)
        own_redis.start()


@pytest.mark.usefixtures("long_reads")
def test_a_planned_failover_is_followed_while_the_former_master_still_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the event: the look that each second brings would come too late."""
    monkeypatch.setattr(master, "_INTERVAL_S", 600.0)
    with failover(tmp_path) as servers, InputQueue(url=servers.url) as queue, InputQueue(url=servers.url) as waiting:
        client: Any = RedisSettings.parse(servers.url).client()  # as the heartbeat's
        client.set("beat", "before")
        servers.master.serve_once(queue.name)
        queue.enqueue("before", t=ROW)
        lost: list[str] = []

        def wait_for_an_answer() -> None:
            with pytest.raises(ConnectionLost, match="another Redis has become the master") as caught:
                waiting.predict(ROW, timeout=60)
            lost.append(str(caught.value))

        with in_background(wait_for_an_answer):
            wait_until(lambda: has_waiting_call(client), "the call waits")
            wait_until(servers.has_listener, "the watch hears the events")
            move(servers)
            wait_until(lambda: lost, "the call that waits is told")
            queue.enqueue("after", t=ROW)
            client.set("beat", "after")
            assert servers.has_former_master(), "nobody was cut off by Redis"

        with servers.replica.client() as there:
            assert (there.xlen(queue.name), there.get("beat")) == (3, b"after")
        client.close()


def test_a_planned_failover_is_followed_by_asyncio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "cluster_serving.client.aio.replies"
    monkeypatch.setattr(f"{module}.BLOCK_S", 60.0)  # the cut comes during a read
    monkeypatch.setattr(f"{module}.AsyncReplies._read.__defaults__", (60.0,))

    async def run(servers: Failover) -> None:
        async with AsyncInputQueue(url=servers.url) as queue:
            servers.master.serve_once(queue.name)
            await queue.enqueue("before", t=ROW)
            call = asyncio.create_task(queue.predict(ROW, timeout=60))
            with servers.master.client() as client:
                await asyncio.to_thread(wait_until, lambda: has_waiting_call(client), "the call waits")
            await asyncio.to_thread(move, servers)
            with pytest.raises(ConnectionLost, match="another Redis has become the master"):
                await call
            await queue.enqueue("after", t=ROW)
            assert servers.has_former_master(), "nobody was cut off by Redis"
            with servers.replica.client() as there:
                assert there.xrevrange(queue.name, count=1)[0][1][b"uri"] == b"after"

    with failover(tmp_path) as servers:
        asyncio.run(run(servers))


def test_no_record_goes_to_a_former_master_in_the_instant_before_the_cut(
    own_redis: PrivateRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[master.Connection] = []

    def watch(_sentinels: master.Sentinels, connection: master.Connection) -> None:
        watched.append(connection)

    monkeypatch.setattr(master.Sentinels, "watch", watch)
    with sentinel(tmp_path, own_redis.port) as watching:
        link = Link(RedisSettings.parse(watching.url))
        link.connect()
        link.drop_if_stale()
        assert link.connected
        watched[0].is_cut = True

        link.drop_if_stale()

        assert not link.connected


def has_waiting_call(client: Any) -> bool:
    """Return True once the second record is in the stream, and its caller reads from this Redis."""
    return bool(client.xlen("serving_stream") == 2 and client.info("clients")["blocked_clients"])


def move(servers: Failover) -> None:
    """Let the replica take over."""
    servers.wait_for_replica()
    servers.begin_planned()
    wait_until(servers.has_new_master, "the replica has taken over")


FORKING = """
import os, sys
import numpy as np
from cluster_serving.client import ConnectionLost, InputQueue
from cluster_serving.client.threads import replies

replies.Replies._read_for_all.__defaults__ = (60.0, None)  # the cut comes during a read

def call():
    with InputQueue(url=sys.argv[1]) as queue:
        try:
            queue.predict(np.zeros(3, np.float32), timeout=60)
        except ConnectionLost:
            queue.enqueue("after", t=np.zeros(3, np.float32))

with InputQueue(url=sys.argv[1]) as queue:
    queue.enqueue("before", t=np.zeros(3, np.float32))
    if not os.fork():
        call()
        os._exit(0)
    os.wait()
"""


def test_a_child_of_fork_follows_too(tmp_path: Path) -> None:
    with failover(tmp_path) as servers, servers.master.client() as client:
        servers.master.serve_once("serving_stream")
        program = subprocess.Popen([sys.executable, "-c", FORKING, servers.url])
        wait_until(lambda: has_waiting_call(client), "the child waits")
        move(servers)

        assert program.wait(120) == 0
        with servers.replica.client() as there:
            assert there.xrevrange("serving_stream", count=1)[0][1][b"uri"] == b"after"
