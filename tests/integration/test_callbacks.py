"""Results posted to callbacks, with the test as the node and as the receivers."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from sanic import HTTPResponse

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.metrics.timers import Timers
from cluster_serving.frontend.models.later import kept
from cluster_serving.frontend.models.later.callbacks import Callbacks
from cluster_serving.frontend.models.later.kept import CallId
from support.private_redis import PrivateRedis

CALLS, MOST = 300, 64
"""More than a process posts at once, and as many as it posts at once to a host."""
TIMEOUT_S = 1.0
DEADLINE_S = 60.0


class Host:
    """A receiver on this machine.

    Attributes:
        posts: for each post, the number of posts under way.
    """

    def __init__(self, answer: bytes) -> None:
        self.name = ""
        self.posts: list[int] = []
        self._under_way = 0
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer, or without an answer hang until the sender gives up."""
        await reader.readuntil(b"\r\n\r\n")
        self._under_way += 1
        self.posts.append(self._under_way)
        if not self._answer:
            with suppress(ConnectionError):
                await reader.read()
        self._under_way -= 1
        writer.write(self._answer)
        writer.close()


@asynccontextmanager
async def receiver(answer: bytes) -> AsyncGenerator[Host]:
    """A receiver for a block."""
    host = Host(answer)
    async with await asyncio.start_server(host.serve, "127.0.0.1", 0) as server:
        host.name = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield host


def finish(server: PrivateRedis, host: Host, calls: int) -> None:
    """Keep finished calls, as the frontend and a node do."""
    with server.client() as client:
        for _ in range(calls):
            call = CallId.new("called back")
            facts = {kept.ID: str(call), kept.OWNER: "", kept.FORM: b"", kept.RECORDS: 1, kept.EXPIRES: 0, keys.LEFT: 0}
            facts |= {keys.CALLBACK: f"http://{host.name}/a", keys.FINISHED: 1}
            client.hset(call.key, mapping=facts)
            client.zadd(keys.CALLBACKS, {call.key: 0})


def test_a_host_that_hangs_keeps_no_other_waiting(own_redis: PrivateRedis) -> None:
    secret = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"

    async def run() -> None:
        async with receiver(b"") as silent, receiver(b"HTTP/1.1 204 No Content\r\n\r\n") as quick:
            config = FrontendConfig.model_validate(
                {"callbackSecret": secret, "callbackTimeout": TIMEOUT_S, "callbackHosts": [silent.name, quick.name]}
            )
            finish(own_redis, silent, CALLS)
            settings = RedisSettings(port=own_redis.port)
            posting = Callbacks(settings, config, Timers(1).of(0), lambda _: HTTPResponse(b"{}"))
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while not silent.posts:
                        await asyncio.sleep(0.01)
                    finish(own_redis, quick, 20)
                    while len(quick.posts) < 20:
                        await asyncio.sleep(0.01)
                    while silent.posts[-2:] != [1, 1]:
                        await asyncio.sleep(0.01)
            finally:
                await posting.close()
            assert max(silent.posts) <= MOST

    asyncio.run(run())
