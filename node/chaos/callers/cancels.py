"""Programs of asyncio that cancel their tasks."""

import asyncio

from cluster_serving.node.chaos.callers.async_calls import AsyncCalls
from cluster_serving.node.chaos.callers.caller import Caller
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally

_TASKS = 6
_LONGEST_S = 0.05


class Cancels(Caller):
    """Tasks of asyncio are cancelled at random instants."""

    def __init__(self, name: str, kit: Kit) -> None:
        super().__init__(name, kit)
        self._calls = AsyncCalls(name, kit)
        self._runner = asyncio.Runner()

    @property
    def tally(self) -> Tally:
        """Report of the caller."""
        return self._calls.tally

    def round(self) -> None:
        """Make calls at once, and cancel some."""
        self._runner.run(self._call())

    def last_round(self) -> None:
        """Make a call that nothing disturbs."""
        self._runner.run(self._calls.any_call())

    async def _call(self) -> None:
        random = self._calls.random
        tasks = [asyncio.create_task(self._calls.any_call()) for _ in range(_TASKS)]
        for task in random.sample(tasks, _TASKS // 2):
            await asyncio.sleep(random.uniform(0, _LONGEST_S))
            task.cancel()
        await asyncio.wait(tasks)
        self.tally.stopped += sum(task.cancelled() for task in tasks)
