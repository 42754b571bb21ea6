"""A Redis that answers every command with BUSY, because a script runs."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest
import redis

from support.clients import in_background
from support.private_redis import PrivateRedis
from support.wait import wait_until


@contextmanager
def busy(server: PrivateRedis) -> Generator[None]:
    """Keep a server busy for a block, from its first answer of BUSY on."""

    def run() -> None:
        with server.client() as other, pytest.raises(redis.ResponseError, match="killed"):
            other.eval("while true do end", 0)

    def is_busy() -> bool:
        try:
            client.ping()
        except redis.ResponseError as error:
            return str(error).startswith("BUSY")
        return False

    with server.client() as client:
        client.config_set("lua-time-limit", "50")
        with in_background(run):
            try:
                wait_until(is_busy, "it answers every command with BUSY")
                yield
            finally:
                client.script_kill()
