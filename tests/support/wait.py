"""Wait for a condition with a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.1  # many conditions ask Redis: what waits long must not ask all the time


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 120.0) -> T:
    """The first true value of `condition`.

    Raises:
        AssertionError: it did not come in time.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, _LONGEST_PAUSE_S)
    return value


async def until(condition: Callable[[], T], timeout_s: float = 20.0) -> T:
    """Return the first true value of `condition`, while the event loop goes on.

    Raises:
        TimeoutError: it did not come in time.
    """
    async with asyncio.timeout(timeout_s):
        while not (value := condition()):
            await asyncio.sleep(0.01)
    return value
