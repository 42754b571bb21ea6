"""Admission of records into a job's stream, for asyncio. Calls made during one trip to Redis share the next trip."""

import asyncio
from collections import deque
from contextlib import suppress
from copy import copy
from typing import Any

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost, QueueFull, RedisRefused
from cluster_serving.client.protocol.admission import (
    CHUNK,
    CHUNK_BYTES,
    Records,
    admitted,
    answered,
    check,
    deadline,
    question,
    refused,
    transaction,
)
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.protocol.retrying import Attempts


class _Call:
    """Records of one call of `put`: the records that are left, and the future for the ids of all records."""

    __slots__ = ("_taken", "attempts", "ids", "left", "until_s")

    def __init__(
        self, records: list[Fields], ids: asyncio.Future[list[bytes]], until_s: float, give_up_s: float
    ) -> None:
        self.left = records
        self.ids = ids
        self.until_s = until_s
        self.attempts = Attempts(give_up_s)
        self._taken: list[bytes] = []

    def accept(self, entry_ids: list[bytes]) -> None:
        """Note the ids of the first records that are left: Redis has taken the records."""
        self._taken += entry_ids
        if entry_ids:
            self.attempts.progress()
        self.left = self.left[len(entry_ids) :]
        if not self.left and not self.ids.done():
            self.ids.set_result(self._taken)

    def fail(self, error: Exception) -> None:
        """End the call with an error: Redis will not take the records that are left."""
        if isinstance(error, (QueueFull, ConnectionLost)):
            cause = error.__cause__
            error = copy(error)
            error.__cause__, error.accepted = cause, len(self._taken)
        fail(self.ids, error)


class AsyncAdmission:
    """`admission.Admission` for asyncio. The link may have other users.

    `window_s`: seconds that a call waits for more calls to share the trip, unless `window_calls` calls have come.
    """

    def __init__(
        self, link: AsyncLink, job: str, patience_s: float, window_s: float = 0, window_calls: int = CHUNK
    ) -> None:
        self._link = link
        self.job = job
        self._patience_s = patience_s
        self._window_s = window_s
        self._window_calls = window_calls
        self._enough = asyncio.Event()
        self._unsent: deque[_Call] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._full = False  # True if the last attempt found no room. The next attempt then asks for room first

    def put(self, records: list[Fields], life_s: float) -> asyncio.Future[list[bytes]]:
        """Enqueue all records as `Admission.put` does. Return a future for the ids."""
        for fields in records:
            check(fields)
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        until_s = now_s + life_s
        call = _Call(records, loop.create_future(), until_s, min(now_s + self._patience_s, until_s))
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
        """Cancel the calls that have not been sent, and the calls under way."""
        while self._unsent:
            self._unsent.popleft().ids.cancel()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

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
                records += len(calls[-1].left)
                size += sum(len(value) for fields in calls[-1].left for value in fields)
            try:
                await self._put_until_done(calls)
            except Exception as error:
                for call in calls:
                    call.fail(error)
            finally:
                for call in calls:
                    call.ids.cancel()  # no effect on a finished call: every call is finished, unless `close` has ended the task

    async def _put_until_done(self, calls: list[_Call]) -> None:
        """Enqueue the records of the calls in order, with retries."""
        while calls := [call for call in calls if not call.ids.done()]:
            try:
                await self._put_once(calls)
            except (QueueFull, ConnectionLost) as error:
                await _pause([call for call in calls if not call.ids.done()], error)

    async def _put_once(self, calls: list[_Call]) -> None:
        """Enqueue as many records as have room.

        Raises:
            QueueFull: not all records had room.
            ConnectionLost, RedisRefused: no record was enqueued.
        """
        full: QueueFull | None
        room = wanted = sum(len(call.left) for call in calls)
        try:
            if self._full:
                surplus, full = await self._ask(wanted)
                room -= surplus
                if not room and full is not None:
                    raise full
            now_s = asyncio.get_running_loop().time()
            together: list[Records] = []
            for call in calls:
                together.append(Records(call.left[:room], deadline(call.until_s - now_s)))
                room -= min(room, len(call.left))
            replies = await self._link.call_checked(transaction(self.job, *together))
            taken, full = admitted(self.job, replies[-1])
        except RedisRefused as error:
            taken, full = [], refused(self.job, error)
        self._full = len(taken) < wanted
        last = 0
        for call in calls:
            first, last = last, last + len(call.left)
            call.accept(taken[first:last])
        if full is not None:
            raise full

    async def _ask(self, count: int) -> tuple[int, QueueFull | None]:
        """Return how many of `count` records have no room, and the error for them, if any."""
        try:
            (answer,) = await self._link.call_checked(question(self.job, count))
        except ConnectionLost as error:
            error.unsent = True  # the records to enqueue have not been sent
            raise
        return answered(self.job, answer)


async def _pause(calls: list[_Call], error: QueueFull | ConnectionLost) -> None:
    """Wait before the next attempt. A call without a next attempt fails."""
    now_s = asyncio.get_running_loop().time()
    pauses_s: list[float] = []
    for call in calls:
        try:
            pauses_s.append(call.attempts.pause_s(error, now_s))
        except (QueueFull, ConnectionLost):
            call.fail(error)
    if pauses_s:
        await asyncio.sleep(min(pauses_s))


def fail(future: asyncio.Future[Any], error: Exception) -> None:
    """Give an error to the waiter of a future, unless the future is done."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # mark as seen: the waiter may have ended by another error, and the event loop would complain
