"""Every way to reach Redis but Sentinels (`test_sentinels.py`): Unix socket, password, TLS; for both kinds of client."""

import asyncio
import gc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, ConnectionLost, InputQueue, OutputQueue
from support.certificates import tls_of_redis, write_certificates
from support.private_redis import PrivateRedis, free_port, private_redis

ROW = np.zeros(3, np.float32)


@pytest.fixture(autouse=True)
def no_garbage_of_others() -> None:
    """Collect what earlier tests have left, so that only connections of these tests can complain."""
    with warnings.catch_warnings(action="ignore"):
        gc.collect()


def works(server: PrivateRedis, **settings: Any) -> bool:
    """Return whether records get through, from threads and from asyncio."""

    async def enqueue() -> None:
        async with AsyncInputQueue(**settings) as queue:
            await queue.enqueue("b", t=ROW)

    with InputQueue(**settings) as queue, OutputQueue(**settings) as output:
        queue.enqueue("a", t=ROW)
        asyncio.run(enqueue())
        gc.collect()  # a connection that is still open would complain
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


def test_tls(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    port = free_port()
    options = [part for key, value in tls_of_redis(tmp_path, port).items() for part in (f"--{key}", value)]
    try:
        server = PrivateRedis(tmp_path, *options)
    except AssertionError:
        pytest.skip("this redis-server was built without TLS")
    try:
        assert works(server, url=f"rediss://127.0.0.1:{port}", ssl_ca_certs=str(tmp_path / "cert.pem"))
        with pytest.raises(ConnectionLost, match="certificate"):
            InputQueue(url=f"rediss://127.0.0.1:{port}").enqueue("a", t=ROW)
    finally:
        server.stop()
