"""Every way to reach Redis: Unix socket, password, TLS, Sentinel; for both kinds of client."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from cluster_serving.client import AsyncInputQueue, ConnectionLost, InputQueue, OutputQueue
from cluster_serving.node.job.redis_program import find_server
from support.private_redis import PrivateRedis, free_port, private_redis
from support.programs import program
from support.wait import wait_until

ROW = np.zeros(3, np.float32)


def works(server: PrivateRedis, **settings: Any) -> bool:
    """Whether records get through, from threads and from asyncio."""

    async def enqueue() -> None:
        async with AsyncInputQueue(**settings) as queue:
            await queue.enqueue("b", t=ROW)

    with InputQueue(**settings) as queue, OutputQueue(**settings) as output:
        queue.enqueue("a", t=ROW)
        asyncio.run(enqueue())
        assert output.query("a") == "[]"
    with InputQueue(**settings) as queue:
        return int(queue.db.xlen("serving_stream")) == 2


def test_a_unix_socket(own_redis: PrivateRedis) -> None:
    assert works(own_redis, url=f"unix://{own_redis.socket_path}")


def test_a_password_and_a_database(tmp_path: Path) -> None:
    with private_redis(tmp_path, "--requirepass", "s3cret/@") as server:
        assert works(server, port=server.port, password="s3cret/@", db=3)  # noqa: S106 - of this test alone
        with pytest.raises(ConnectionLost) as caught:
            InputQueue(port=server.port, password="wr0ng").enqueue("a", t=ROW)  # noqa: S106 - wrong on purpose

        assert "wr0ng" not in str(caught.value)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed certificate for 127.0.0.1, its key beside it."""
    command = [
        program("openssl"),
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=127.0.0.1",
    ]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "cert.pem"


def test_tls(certificate: Path, tmp_path: Path) -> None:
    port, files = free_port(), ("--tls-cert-file", str(certificate), "--tls-key-file", str(tmp_path / "key.pem"))
    options = ("--tls-port", str(port), *files, "--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "no")
    try:
        server = PrivateRedis(tmp_path, *options)
    except AssertionError:
        pytest.skip("this redis-server was built without TLS")
    try:
        assert works(server, url=f"rediss://127.0.0.1:{port}", ssl_ca_certs=str(certificate))
        with pytest.raises(ConnectionLost, match="certificate"):
            InputQueue(url=f"rediss://127.0.0.1:{port}").enqueue("a", t=ROW)
    finally:
        server.stop()


@pytest.fixture
def sentinel(own_redis: PrivateRedis, tmp_path: Path) -> Iterator[int]:
    """A Sentinel that watches the server as `mymaster`; its port."""
    port, conf = free_port(), tmp_path / "sentinel.conf"
    conf.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {own_redis.port} 1\n")
    process = subprocess.Popen([find_server(os.environ).path, conf, "--sentinel"], stdout=subprocess.DEVNULL)

    def knows_its_master() -> bool:
        try:
            with redis.Redis(port=port) as client:
                return bool(client.sentinel_master("mymaster"))
        except redis.RedisError:
            return False

    try:
        wait_until(knows_its_master, "the Sentinel knows its master")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_sentinel(own_redis: PrivateRedis, sentinel: int) -> None:
    assert works(own_redis, url=f"redis+sentinel://127.0.0.1:{sentinel}/mymaster")


def test_a_sentinel_that_is_not_there_is_named(own_redis: PrivateRedis) -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()}/mymaster"

    with pytest.raises(ConnectionLost, match="no Sentinel answered with a master named mymaster"):
        InputQueue(url=url, patience_s=0).enqueue("a", t=ROW)
