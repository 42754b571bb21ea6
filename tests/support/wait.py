"""Wait for a condition with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 60.0) -> T:
    """The first true value of `condition`.

    Raises:
        AssertionError: it did not come in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"{what}: not within {timeout_s} s")
        time.sleep(0.01)
    return value
