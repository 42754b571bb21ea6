"""Every call of the queues, for threads and for asyncio, with a check of each answer: twice the number of its record."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import numpy as np

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, Failed, InputQueue, OutputQueue, Result

_PATIENCE_S = 10.0
_LOOP_PATIENCE_S = 0.5
_MANY = 20

KEPT = range(1, 101)
"""Numbers of records of one more job, whose results nobody takes."""


def kept(job: str) -> str:
    """Return the name of that job."""
    return f"{job}_kept"


class Wrong(Exception):
    """An answer does not belong to its record."""


class Records:
    """Numbered records, and the check of their answers: twice the number."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self.enqueued = [0]
        """Numbers of records whose results may lie in Redis: a uri is `u` and the number."""

    def take(self, many: int = _MANY) -> list[int]:
        """Return numbers that no record has had."""
        return [next(self._numbers) for _ in range(many)]

    def check(self, number: int, answer: Any) -> None:
        """Compare an answer with its record.

        Raises:
            Wrong: the answer is another record's.
        """
        if isinstance(answer, Failed) or answer != 2 * number:
            raise Wrong(f"{number}: {answer!r}")

    def check_result(self, result: Result) -> None:
        """Compare a result with the record of its uri."""
        self.check(int(result.uri[1:]), result.value)

    def check_queried(self, number: int, answer: Any) -> None:
        """Compare the result of a query, which may not be there."""
        if answer != "[]":
            self.check(number, answer)

    def check_dequeued(self, answers: dict[str, Any]) -> None:
        """Compare the results of `dequeue`."""
        for uri, answer in answers.items():
            self.check(int(uri[1:]), answer)


def row(number: int) -> Any:
    """Return the value of a record's input."""
    return np.array([number], np.int64)


class Threads:
    """The calls of the queues for threads."""

    def __init__(self, port: int, job: str, records: Records) -> None:
        self.input = InputQueue(port=port, name=job)
        self.original = InputQueue(port=port, name=job, dialect="original")
        self.output = OutputQueue(port=port, name=job)
        self.kept = OutputQueue(port=port, name=kept(job))
        self.records = records

    def calls(self) -> list[Callable[[Random], Any]]:
        """Return all calls."""
        calls = [*self.calls_beside(), self._enqueue_many, self._predict_original]
        return [*calls, self._take, self._dequeue, self._results, self._close]

    def calls_beside(self) -> list[Callable[[Random], Any]]:
        """Return the calls for several threads at once."""
        return [self._predict, self._predict_many, self._as_completed, self._query, self._enqueue]

    def _predict(self, _: Random) -> None:
        (number,) = self.records.take(1)
        self.records.check(number, self.input.predict(row(number), timeout=_PATIENCE_S))

    def _predict_many(self, random: Random) -> None:
        numbers = self.records.take()
        answers = self.input.predict_many(map(row, numbers), timeout=_PATIENCE_S, window=random.randint(1, _MANY))
        for number, answer in zip(numbers, answers, strict=True):
            self.records.check(number, answer)

    def _as_completed(self, random: Random) -> None:
        records = [(f"u{number}", {"t": row(number)}) for number in self.records.take()]
        for result in self.input.as_completed(records, timeout=_PATIENCE_S, window=random.randint(1, _MANY)):
            self.records.check_result(result)

    def _enqueue(self, _: Random) -> None:
        (number,) = self.records.take(1)
        self.records.enqueued.append(number)
        self.input.enqueue(f"u{number}", t=row(number))

    def _enqueue_many(self, _: Random) -> None:
        numbers = self.records.take()
        self.records.enqueued += numbers
        self.input.enqueue_many((f"u{number}", {"t": row(number)}) for number in numbers)

    def _predict_original(self, _: Random) -> None:
        (number,) = self.records.take(1)
        self.records.check(number, self.original.predict(row(number), timeout=_PATIENCE_S))

    def _query(self, random: Random) -> None:
        for number in random.sample(KEPT, _MANY):
            self.records.check(number, self.kept.query(f"u{number}"))

    def _take(self, random: Random) -> None:
        number = random.choice(self.records.enqueued[-_MANY:])
        self.records.check_queried(number, self.output.query_and_delete(f"u{number}"))

    def _dequeue(self, _: Random) -> None:
        self.records.check_dequeued(own(self.output.dequeue()))

    def _results(self, _: Random) -> None:
        for result in self.output.results(timeout=0.002):
            if result.uri.startswith("u"):
                self.records.check_result(result)

    def _close(self, random: Random) -> None:
        queues: list[InputQueue | OutputQueue] = [self.input, self.original, self.output, self.kept]
        random.choice(queues).close()


class Asyncio:
    """The calls of the queues for asyncio, one after the other in one event loop."""

    def __init__(self, port: int, job: str, records: Records) -> None:
        self.runner = asyncio.Runner()
        self.input = AsyncInputQueue(host="127.0.0.1", port=port, name=job)
        self.output = AsyncOutputQueue(host="127.0.0.1", port=port, name=job)
        self.kept = AsyncOutputQueue(host="127.0.0.1", port=port, name=kept(job))
        self.records = records

    def calls(self) -> list[Callable[[Random], Any]]:
        """Return all calls."""
        calls = [self._predict, self._predict_many, self._as_completed, self._enqueue, self._enqueue_many]
        return [
            self._run(call) for call in [*calls, self._query, self._take, self._dequeue, self._results, self._close]
        ]

    def _run(self, call: Callable[[Random], Coroutine[Any, Any, None]]) -> Callable[[Random], None]:
        """Return a call for threads that runs in the event loop."""

        async def limited(random: Random) -> None:
            async with asyncio.timeout(_LOOP_PATIENCE_S):
                await call(random)

        return lambda random: self.runner.run(limited(random))

    async def _predict(self, _: Random) -> None:
        numbers = self.records.take(5)
        answers = await asyncio.gather(*(self.input.predict(row(number), timeout=_PATIENCE_S) for number in numbers))
        for number, answer in zip(numbers, answers, strict=True):
            self.records.check(number, answer)

    async def _predict_many(self, random: Random) -> None:
        numbers = self.records.take()
        window, expected = random.randint(1, _MANY), iter(numbers)
        async for answer in self.input.predict_many(map(row, numbers), timeout=_PATIENCE_S, window=window):
            self.records.check(next(expected), answer)

    async def _as_completed(self, random: Random) -> None:
        records = [(f"u{number}", {"t": row(number)}) for number in self.records.take()]
        async for result in self.input.as_completed(records, timeout=_PATIENCE_S, window=random.randint(1, _MANY)):
            self.records.check_result(result)

    async def _enqueue(self, _: Random) -> None:
        (number,) = self.records.take(1)
        self.records.enqueued.append(number)
        await self.input.enqueue(f"u{number}", t=row(number))

    async def _enqueue_many(self, _: Random) -> None:
        numbers = self.records.take()
        self.records.enqueued += numbers
        await self.input.enqueue_many((f"u{number}", {"t": row(number)}) for number in numbers)

    async def _query(self, random: Random) -> None:
        for number in random.sample(KEPT, _MANY):
            self.records.check(number, await self.kept.query(f"u{number}"))

    async def _take(self, random: Random) -> None:
        number = random.choice(self.records.enqueued[-_MANY:])
        self.records.check_queried(number, await self.output.query_and_delete(f"u{number}"))

    async def _dequeue(self, _: Random) -> None:
        self.records.check_dequeued(own(await self.output.dequeue()))

    async def _results(self, _: Random) -> None:
        async for result in self.output.results(timeout=0.002):
            if result.uri.startswith("u"):
                self.records.check_result(result)

    async def _close(self, random: Random) -> None:
        queues: list[AsyncInputQueue | AsyncOutputQueue] = [self.input, self.output, self.kept]
        await random.choice(queues).close()


def own(answers: dict[str, Any]) -> dict[str, Any]:
    """Leave out the results of `predict` in the original dialect, whose uris are generated."""
    return {uri: answer for uri, answer in answers.items() if uri.startswith("u")}
