"""A model for `bench.bottlenecks` that takes its time: its records say how long a batch sleeps and computes, one worker is slow."""

import fcntl
import time
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

SICK = "sick"
"""File beside the model: the first worker that locks it takes 250 times as long."""
_SICKNESS = 250
_MOST_S = 1.0  # of a batch, however long a warm-up would be


class Model:
    """Gives each row back after the longest of its sleeps and computations, in seconds."""

    inputs = [("x", "float32", (None, 2))]  # noqa: RUF012 - read only
    outputs = [("y", "float32", (None, 2))]  # noqa: RUF012 - read only

    def __init__(self) -> None:
        self._times = 1
        if (path := Path(__file__).with_name(SICK)).exists():
            self._held = path.open("rb")
            try:
                fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._times = _SICKNESS
            except BlockingIOError:
                pass

    def predict(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Sleep, compute, and copy."""
        sleep_s, compute_s = batch["x"].max(axis=0).tolist()
        time.sleep(min(_MOST_S, self._times * sleep_s))
        until_s = time.thread_time() + compute_s
        while time.thread_time() < until_s:
            pass
        return {"y": batch["x"].copy()}
