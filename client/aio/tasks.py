"""The end of background tasks."""

import asyncio
from collections.abc import Collection
from typing import Any


async def cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended.

    A cancelled wait ends at once, also beside a task that never ends: an interrupt of the event loop may lose its next step.
    A cancelled `asyncio.gather` would go on waiting.
    """
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # mark as seen: the event loop would complain
