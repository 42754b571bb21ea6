"""Connections that are left in the middle of a call, closed beside calls, or moved by a failover; for threads and asyncio."""

import traceback
from typing import Any

import pytest

from cluster_serving.client import ConnectionLost
from support.clients import AsyncioClient, ThreadClient, answering, in_background
from support.private_redis import PrivateRedis, free_port
from support.wait import wait_until

CLIENTS = pytest.mark.parametrize("kind", [ThreadClient, AsyncioClient])


@CLIENTS
def test_a_call_that_a_failover_unblocks_has_lost_its_connection(own_redis: PrivateRedis, kind: Any) -> None:
    client = kind(port=own_redis.port)

    def unblock() -> None:
        with own_redis.client() as admin:
            found = wait_until(lambda: [each for each in admin.client_list() if "b" in each["flags"]], "a client waits")
            admin.client_unblock(int(found[0]["id"]), error=True)

    with in_background(unblock), pytest.raises(ConnectionLost, match="UNBLOCKED") as raised:
        client.predict(timeout=30)

    assert not raised.value.unsent
    client.close()


@CLIENTS
def test_a_user_who_may_delete_nothing_can_close(own_redis: PrivateRedis, kind: Any) -> None:
    with own_redis.client() as admin:
        admin.execute_command("ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-del")
    client = kind(port=own_redis.port, username="u", password="p")  # noqa: S106 - of this test alone

    with answering(own_redis):
        client.predict()

    client.close()


@CLIENTS
def test_a_refused_connection_has_a_short_traceback(kind: Any) -> None:
    client = kind(port=free_port(), patience_s=0)

    with pytest.raises(ConnectionLost, match="Error 111 connecting") as raised:
        client.predict()

    told = "".join(traceback.format_exception(raised.value))
    assert "redis/" not in told
    assert len(told.splitlines()) < 50
    client.close()
