"""Calls of the queues for asyncio, with a check of every answer."""

from cluster_serving.client.aio.input_queue import AsyncInputQueue
from cluster_serving.client.protocol.results import plain_or_error
from cluster_serving.node.chaos.callers.calls import Checks, sample_of
from cluster_serving.node.chaos.callers.kit import Kit


class AsyncCalls(Checks):
    """The calls. Each waits for all answers."""

    def __init__(self, caller: str, kit: Kit) -> None:
        super().__init__(caller, kit)
        self._input = AsyncInputQueue(url=kit.url, name=kit.job)

    async def any_call(self) -> None:
        """Make one of the calls."""
        with self.counted():
            await self.random.choice([self.predict, self.predict_many, self.as_completed])()

    async def predict(self) -> None:
        """Send one record after the other."""
        for sample in self.draw(4):
            self.check(sample, await self._input.predict(self.kit.inputs[sample], timeout=self.kit.timeout_s))

    async def predict_many(self) -> None:
        """Send records, and get the answers in order."""
        samples = self.draw()
        requests = (self.kit.inputs[sample] for sample in samples)
        expected = iter(samples)
        async for answer in self._input.predict_many(requests, timeout=self.kit.timeout_s):
            self.check(next(expected), answer)
        if list(expected):
            raise LookupError("predict_many ended early")

    async def as_completed(self) -> None:
        """Send records with uris, and get the results as they come."""
        missing = {self.uri(sample) for sample in self.draw()}
        records = [(uri, self.kit.inputs[sample_of(uri)]) for uri in sorted(missing)]
        async for result in self._input.as_completed(records, timeout=self.kit.timeout_s):
            self.check(sample_of(result.uri), plain_or_error(result))
            missing.remove(result.uri)  # KeyError: a result that came twice
        if missing:
            raise LookupError(f"as_completed ended without {missing}")
