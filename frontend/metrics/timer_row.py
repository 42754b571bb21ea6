"""Memory in which one process of a frontend keeps its times and counts.

    | process | counts | sign of life | counts of requests | keys of requests | keys of models | timers | 2 timers for each model |

A timer is three blocks. The first block holds the observations since the start. The second and third are copies of the first,
taken at the end of the last two windows of five minutes. The first block less the older copy gives the recent observations. An
unused timer keeps its content, as the reservoirs of the original did.
"""

import math
import mmap
import os
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from cluster_serving.frontend.metrics.buckets import BOUNDS_S, Numbers, Times

WINDOW_S = 300.0

Blocks: TypeAlias = "memoryview[float]"
Key = tuple[str, str]
OTHER: Key = ("other", "other")
"""Key of all requests or models without room for a key of their own."""

SUM, SQUARES, LEAST, MOST, UNTIL, BUCKETS = range(6)
"""Block: sum of the times, sum of the squares, extremes of the window that lasts UNTIL, and a count for each bucket."""

WIDTH = BUCKETS + len(BOUNDS_S) + 1

_BOUNDS = np.array(BOUNDS_S)

_COUNTS = 15
_SEEN = 8 * (1 + _COUNTS)
_REQUESTS = 256
_MODELS = 64
_KEY_BYTES = 256
_REQUEST_KEYS = _SEEN + 8 + 8 * _REQUESTS
_MODEL_KEYS = _REQUEST_KEYS + _KEY_BYTES * _REQUESTS
_TIMERS = _MODEL_KEYS + _KEY_BYTES * _MODELS


class Keys:
    """Keys by number. A key without a number gets the next number, and keeps the number."""

    def __init__(self, view: memoryview) -> None:
        self._slots = [view[start : start + _KEY_BYTES] for start in range(0, len(view), _KEY_BYTES)]
        self._numbers = {key: number for number, key in enumerate(self.all())}

    def all(self) -> list[Key]:
        """Return the keys with a number, in the order of the numbers."""
        keys: list[Key] = []
        for slot in self._slots:
            if not slot[0]:
                break
            keys.append(msgspec.json.decode(bytes(slot).rstrip(b"\0"), type=Key))
        return keys

    def number(self, key: Key) -> int:
        """Return the number of a key, or the number of `OTHER` without room for a new key."""
        found = self._numbers.get(key)
        if found is not None:
            return found
        number = len(self._numbers)
        text = msgspec.json.encode(key)
        if len(text) > _KEY_BYTES or (number >= len(self._slots) - 1 and key != OTHER):
            return self.number(OTHER)
        self._slots[number][1 : len(text)] = text[1:]
        self._slots[number][0] = text[0]  # last: from now on other processes read the key
        self._numbers[key] = number
        return number


class Row:
    """Memory of one process, seen by any process.

    Args:
        view: memory of `Row.size` bytes.

    Attributes:
        process: id of the process that writes the row, or 0 before the first.
        counts: counts named by `timers.Count`.
        seen_s: time of the last sign of life of the process, or 0 before the first.
        requests: number of answered requests for each of `request_keys`.
        request_keys: routes and statuses.
        model_keys: names and versions.
    """

    def __init__(self, view: memoryview, timers: int) -> None:
        self.process = view[:8].cast("q")
        self.counts = view[8:_SEEN].cast("q")
        self.seen_s = view[_SEEN : _SEEN + 8].cast("d")
        self.requests = view[_SEEN + 8 : _REQUEST_KEYS].cast("q")
        self.request_keys = Keys(view[_REQUEST_KEYS:_MODEL_KEYS])
        self.model_keys = Keys(view[_MODEL_KEYS:_TIMERS])
        self._blocks = view[_TIMERS:].cast("d")
        self._timers = timers

    @staticmethod
    def size(timers: int) -> int:
        """Return the bytes of a row with a number of timers, and two timers for each model."""
        return mmap.PAGESIZE * math.ceil((_TIMERS + 8 * 3 * WIDTH * (timers + 2 * _MODELS)) / mmap.PAGESIZE)

    @property
    def is_alive(self) -> bool:
        """True while the process that writes the row lives."""
        if not self.process[0]:
            return False
        try:
            os.kill(self.process[0], 0)
        except (
            ProcessLookupError,
            PermissionError,
        ):  # no process, or another user's process that has got the number since
            return False
        return True

    def timer(self, number: int) -> Blocks:
        """Return the three blocks of a timer."""
        return self._blocks[number * 3 * WIDTH : (number + 1) * 3 * WIDTH]

    def model_timers(self, number: int) -> tuple[Blocks, Blocks]:
        """Return the two timers of a model."""
        first = self._timers + 2 * number
        return self.timer(first), self.timer(first + 1)


def turn(timer: Blocks, now_s: float) -> None:
    """Begin a new window of a timer: copy the observations since the start."""
    until_s = (now_s // WINDOW_S + 1) * WINDOW_S
    if not timer[UNTIL] or until_s - timer[UNTIL] > WINDOW_S:  # the window before is empty
        timer[LEAST], timer[MOST] = math.inf, 0.0
        timer[WIDTH : 2 * WIDTH] = timer[2 * WIDTH :] = timer[:WIDTH]
    else:
        older = WIDTH if timer[WIDTH + UNTIL] < timer[2 * WIDTH + UNTIL] else 2 * WIDTH
        timer[older : older + WIDTH] = timer[:WIDTH]
        timer[LEAST], timer[MOST] = math.inf, 0.0
    timer[UNTIL] = until_s


class Pending:
    """Times not yet entered into a timer of this process. Append to `seconds`."""

    __slots__ = ("_buckets", "_timer", "seconds")

    def __init__(self, timer: Blocks) -> None:
        self.seconds: list[float] = []
        self._timer = timer
        self._buckets: Numbers = np.asarray(timer)[BUCKETS:WIDTH]

    def flush(self, now_s: float) -> None:
        """Enter the times into the timer."""
        if not self.seconds:
            return
        timer, found = self._timer, np.array(self.seconds)
        self.seconds.clear()
        if now_s >= timer[UNTIL]:
            turn(timer, now_s)
        timer[SUM] += float(found.sum())
        timer[SQUARES] += float((found * found).sum())
        timer[LEAST] = min(timer[LEAST], float(found.min()))
        timer[MOST] = max(timer[MOST], float(found.max()))
        self._buckets += np.bincount(_BOUNDS.searchsorted(found), minlength=WIDTH - BUCKETS)


def times(timers: Sequence[Blocks]) -> Times:
    """Return the observations of several timers, added up."""
    blocks = np.array(timers, np.float64).reshape(-1, 3, WIDTH)
    blocks = blocks[blocks[:, 0, UNTIL] > 0]
    every = np.arange(len(blocks))
    newer = blocks[:, 1:, UNTIL].argmax(axis=1) + 1
    life, last, before = blocks[:, 0], blocks[every, newer], blocks[every, 3 - newer]
    # A process may turn a timer while it is read.
    recent: Numbers = np.maximum(life - before, 0).sum(axis=0)
    least_s = min(life[:, LEAST].min(initial=math.inf), last[:, LEAST].min(initial=math.inf))
    return Times(
        counts=life[:, BUCKETS:].sum(axis=0),
        total_s=float(life[:, SUM].sum()),
        recent=recent[BUCKETS:],
        recent_s=float(recent[SUM]),
        squares=float(recent[SQUARES]),
        least_s=0.0 if math.isinf(least_s) else float(least_s),
        most_s=float(max(life[:, MOST].max(initial=0), last[:, MOST].max(initial=0))),
    )
