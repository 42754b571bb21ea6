"""The end of background tasks, beside one that never ends."""

import asyncio
from contextlib import suppress

import pytest

from cluster_serving.client.aio.tasks import cancel


def test_tasks_have_ended_when_cancel_returns_and_their_errors_are_not_reported() -> None:
    async def main() -> None:
        reports: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))

        async def fail_at_the_end() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                raise ValueError

        tasks = [asyncio.create_task(asyncio.sleep(60)), asyncio.create_task(fail_at_the_end())]
        await asyncio.sleep(0)

        await cancel(tasks)
        assert [task.done() for task in tasks] == [True, True]
        del tasks
        assert reports == []

    asyncio.run(main())


def test_cancel_of_no_task_returns() -> None:
    async def main() -> None:
        await cancel([])

    asyncio.run(main())


def test_a_deadline_ends_the_wait_for_a_task_that_never_ends() -> None:
    async def main() -> None:
        over = asyncio.Event()

        async def go_on() -> None:
            while not over.is_set():
                with suppress(asyncio.CancelledError):
                    await over.wait()

        task = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await cancel([task])

        assert not task.done()
        over.set()
        await task

    asyncio.run(main())
