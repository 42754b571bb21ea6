"""Packing of the records of one job for asyncio: tensors in fewer bytes, where that pays."""

import time
from contextlib import closing, suppress

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.payload import Payload
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.retrying import connect_s
from cluster_serving.client.wire.compression import Codec


class AsyncPacking:
    """Packs records, and asks for the nodes of their job when that is due.

    Args:
        link: connection that asks.
        job: name of the job.
        codec: codec for tensors that shrink.
        timeout_s: seconds that an answer may take.
        patience_s: seconds that connecting may take.
    """

    def __init__(self, link: AsyncLink, job: str, codec: Codec, timeout_s: float, patience_s: float) -> None:
        self._link = link
        self._payload = Payload(job, codec)
        self._timeout_s = timeout_s
        self._patience_s = patience_s

    async def packed(self, fields: Fields, within_s: float) -> Fields:
        """Return the fields of a record as they are sent, after `within_s` seconds at most."""
        payload, now_s = self._payload, time.monotonic()
        if payload.is_due(now_s):
            timeout_s, patience_s = min(within_s, self._timeout_s), min(within_s, self._patience_s)
            with closing(payload.questions(now_s)) as questions, suppress(ConnectionLost, StopIteration):
                command = next(questions)
                while True:
                    (reply,) = await self._link.call(command, timeout_s=timeout_s, connect_s=connect_s(patience_s))
                    if isinstance(reply, RedisRefused):
                        payload.refused(reply)
                        break
                    command = questions.send(reply)
        return payload.packed(fields)
