"""Admission of records into a job's stream, for asyncio. Calls made during one trip to Redis share the next trip."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, NamedTuple

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.aio.tasks import cancel
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.admission import CHUNK, CHUNK_BYTES, HELD, TAKEN, Admission, Send, check
from cluster_serving.client.protocol.durability import Copies
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.resp import abandoned
from cluster_serving.client.protocol.retrying import connect_s


class _Call(NamedTuple):
    """One call of `put`: a send, the future for the ids of all its records, and the latest start of an attempt."""

    send: Send
    ids: asyncio.Future[list[bytes]]
    give_up_s: float

    def settle(self) -> None:
        """Give the outcome of the send to the waiter, if there is an outcome."""
        if self.send.state is TAKEN:
            if not self.ids.done():
                self.ids.set_result(self.send.ids)
        elif self.send.state is not HELD and self.send.error is not None:
            fail(self.ids, self.send.error)


class AsyncAdmission:
    """`threads.admission.ThreadAdmission` for asyncio. The link may have other users.

    `window_s`: seconds that a call waits for more calls to share the trip, unless `window_calls` calls have come. `copies`: as for
    `Admission`.
    """

    def __init__(
        self,
        link: AsyncLink,
        job: str,
        patience_s: float,
        window_s: float = 0,
        window_calls: int = CHUNK,
        copies: Copies | None = None,
    ) -> None:
        self._link = link
        self.job = job
        self._admission = Admission(job, copies)
        self._asks_first = copies is not None
        self._patience_s = patience_s
        self._window_s = window_s
        self._window_calls = window_calls
        self._enough = asyncio.Event()
        self._unsent: deque[_Call] = deque()
        self._sender: asyncio.Task[None] | None = None

    def put(
        self, records: list[Fields], life_s: float, before: int = 0, *, durable: bool = False
    ) -> asyncio.Future[list[bytes]]:
        """Enqueue all records as `ThreadAdmission.put` does. Return a future for the ids."""
        for fields in records:
            check(fields)
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        until_s = now_s + life_s
        give_up_s = min(now_s + self._patience_s, until_s)
        call = _Call(Send(records, until_s, before=before, durable=durable), loop.create_future(), give_up_s)
        if not records:
            call.settle()
            return call.ids
        self._unsent.append(call)
        if len(self._unsent) >= self._window_calls:
            self._enough.set()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_gathered())
        return call.ids

    def withdraw(self, ids: asyncio.Future[list[bytes]]) -> bool:
        """Cancel a call of `put`, if nothing of the call has been sent. Return whether the call is cancelled."""
        for call in self._unsent:
            if call.ids is ids:
                self._unsent.remove(call)
                ids.cancel()
                return True
        return ids.cancelled()

    async def close(self) -> None:
        """End the calls that have not been sent, and the calls under way, with `ConnectionLost`."""
        while self._unsent:
            fail(self._unsent.popleft().ids, abandoned())
        if self._sender is not None:
            await cancel([self._sender])

    async def _send_gathered(self) -> None:
        while self._unsent:
            if self._window_s > 0:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._window_s):
                        await self._enough.wait()
                self._enough.clear()
            calls: list[_Call] = []
            records = size = 0
            while self._unsent and records < CHUNK and size < CHUNK_BYTES:
                calls.append(self._unsent.popleft())
                records += len(calls[-1].send.left)
                size += sum(len(value) for fields in calls[-1].send.left for value in fields)
            try:
                await self._put_until_done(calls)
            except Exception as error:
                for call in calls:
                    fail(call.ids, error)
            finally:
                for call in calls:  # all are finished, unless `close` or an interrupt ended the task
                    if not call.ids.done():
                        fail(call.ids, abandoned())

    async def _put_until_done(self, calls: list[_Call]) -> None:
        """Enqueue the records of the calls in order, with retries."""
        loop = asyncio.get_running_loop()
        while held := [call for call in calls if call.send.state is HELD and not call.ids.done()]:
            sends = [call.send for call in held]
            now_s = loop.time()
            left_s = min(call.give_up_s for call in held) - now_s
            try:
                if self._asks_first and not self._link.connected:  # for the Sentinels to tell the number of replicas
                    await self._link.call(("PING",), connect_s=connect_s(left_s))
                replies = await self._link.call(self._admission.next(sends, now_s), connect_s=connect_s(left_s))
                try:
                    self._admission.receive(sends, replies)
                except RedisRefused as refusal:
                    await self._link.raise_for(refusal)
            except ConnectionLost as error:
                for send in sends:
                    send.fail(error)
            pauses_s: list[float] = []
            for call in held:
                pause_s = call.send.pause_s(loop.time(), call.give_up_s)
                if call.send.state is HELD:
                    pauses_s.append(pause_s)
                call.settle()
            if pause_s := min(pauses_s, default=0):
                await asyncio.sleep(pause_s)


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Give an error to the waiter of a future, unless the future is done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # mark as seen: the waiter may have ended by another error, and the event loop would complain
