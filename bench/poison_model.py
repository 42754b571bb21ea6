"""A model that some records crash, hang or raise in, and that notes what it runs.

y = 2n + 1 over rows (n, harm). It is served from a copy in a directory of the measurement's own: each process notes its runs there,
in `runs-<pid>.log`, before it does anything else. Rows of zeros, as a warm-up has them, cost nothing.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CRASH, HANG, RAISE = 1.0, 2.0, 3.0
RUN_S = 0.04  # so long that the workers, not this machine's cores, are what a rate depends on


class Model:
    """One output; numbers up to 2^23."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None,))]  # noqa: RUF012 - read only

    def __init__(self) -> None:
        path = Path(__file__).with_name(f"runs-{os.getpid()}.log")
        self._notes = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Note the run, and compute the output or do harm."""
        numbers, harms = batch["x"].T
        line = f"{time.monotonic():.4f} {' '.join(str(int(number)) for number in numbers)}\n"
        os.write(self._notes, line.encode())
        if CRASH in harms:
            os.kill(os.getpid(), signal.SIGKILL)
        while HANG in harms:
            time.sleep(60)
        if RAISE in harms:
            raise ValueError("a record that raises")
        if numbers.any():
            time.sleep(RUN_S)
        return {"y": 2 * numbers + np.float32(1)}


class Run(NamedTuple):
    """One run: when it began, in seconds of the monotonic clock, and the numbers of its rows."""

    begun_s: float
    numbers: list[int]

    @property
    def is_warm_up(self) -> bool:
        """True if the run has no record: all its rows are zeros."""
        return not any(self.numbers)


def noted(directory: Path) -> Iterator[list[Run]]:
    """The runs of each process that has served from this directory; one that was killed may have left half a line."""
    for path in directory.glob("runs-*.log"):
        lines = path.read_text(encoding="ascii").splitlines(keepends=True)
        words = [line.split() for line in lines if line.endswith("\n")]
        yield [Run(float(first), [int(number) for number in rest]) for first, *rest in words]
