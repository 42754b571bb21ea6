"""Packing of the records of one job for asyncio: tensors in fewer bytes, where that pays."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import closing, suppress

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.payload import Payload
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.retrying import connect_s
from cluster_serving.client.wire.compression import Codec


class AsyncPacking:
    """Packs records, as the nodes of their job take them.

    Args:
        link: connection that asks for the nodes.
        job: name of the job.
        codec: codec for tensors that shrink.
    """

    def __init__(self, link: AsyncLink, job: str, codec: Codec) -> None:
        self._link = link
        self._payload = Payload(job, codec)

    def packed(self, records: Iterable[Fields]) -> list[Fields]:
        """Return the fields of records as they are sent. Safe in another thread."""
        return [self._payload.packed(fields) for fields in records]

    @property
    def is_due(self) -> bool:
        """True if the nodes are to be asked for again."""
        return self._payload.is_due(time.monotonic())

    async def ask(self, within_s: float, patience_s: float) -> None:
        """Ask for the nodes of the job.

        Args:
            within_s: seconds that all answers may take.
            patience_s: seconds that connecting may take.
        """
        loop, payload = asyncio.get_running_loop(), self._payload
        expires_s = loop.time() + within_s
        with closing(payload.questions(time.monotonic())) as questions, suppress(ConnectionLost, StopIteration):
            command = next(questions)
            while (left_s := expires_s - loop.time()) > 0:
                (reply,) = await self._link.call(
                    command, timeout_s=left_s, connect_s=connect_s(min(left_s, patience_s))
                )
                if isinstance(reply, RedisRefused):
                    payload.refused(reply)
                    break
                command = questions.send(reply)
