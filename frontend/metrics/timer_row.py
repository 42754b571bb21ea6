"""The memory in which one process of a frontend keeps what it measures and counts.

    | process | counts | counts of requests | their keys | keys of models | timers | 2 timers for each model |

A timer is three blocks: what it has observed since the start, and what that was when each of the last two windows of five
minutes ended. The first less the older of these is what it observed lately. A timer that is used no more keeps what it has, as
the reservoirs of the original did.
"""

import math
import mmap
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import numpy as np

from cluster_serving.frontend.metrics.buckets import BOUNDS_S, Numbers, Times

WINDOW_S = 300.0

Blocks: TypeAlias = "memoryview[float]"
Key = tuple[str, str]
OTHER: Key = ("other", "other")
"""The key of all for which there is no room."""

SUM, SQUARES, LEAST, MOST, UNTIL, BUCKETS = range(6)
"""A block: sums of the times and of their squares; extremes of the window that lasts UNTIL; a count for each bucket."""

WIDTH = BUCKETS + len(BOUNDS_S) + 1

_BOUNDS = np.array(BOUNDS_S)

_COUNTS = 16  # the process's id is one of them
_REQUESTS = 256
_MODELS = 64
_KEY_BYTES = 256
_REQUEST_KEYS = 8 * (_COUNTS + _REQUESTS)
_MODEL_KEYS = _REQUEST_KEYS + _KEY_BYTES * _REQUESTS
_TIMERS = _MODEL_KEYS + _KEY_BYTES * _MODELS


class Keys:
    """Keys by number; a key that has no number yet gets the next one, and keeps it."""

    def __init__(self, view: memoryview) -> None:
        self._slots = [view[start : start + _KEY_BYTES] for start in range(0, len(view), _KEY_BYTES)]
        self._numbers = {key: number for number, key in enumerate(self.all())}

    def all(self) -> list[Key]:
        """Those that have a number, in its order."""
        keys: list[Key] = []
        for slot in self._slots:
            if not slot[0]:
                break
            keys.append(msgspec.json.decode(bytes(slot).rstrip(b"\0"), type=Key))
        return keys

    def number(self, key: Key) -> int:
        """The number of a key; that of `OTHER` where there is no room."""
        found = self._numbers.get(key)
        return self._add(key) if found is None else found

    def _add(self, key: Key) -> int:
        number = len(self._numbers)
        text = msgspec.json.encode(key)
        if len(text) > _KEY_BYTES or (number >= len(self._slots) - 1 and key != OTHER):
            return self.number(OTHER)
        self._slots[number][1 : len(text)] = text[1:]
        self._slots[number][0] = text[0]  # last: from now on others read it
        self._numbers[key] = number
        return number


class Row:
    """One process's memory, seen by any process.

    Args:
        view: of `Row.size` bytes.

    Attributes:
        process: the id of the process that writes it; 0: none ever did.
        counts: what `timers.Count` names.
        requests: how many were answered, for each of `request_keys`.
        request_keys: routes and statuses.
        model_keys: names and versions.
    """

    def __init__(self, view: memoryview, timers: int) -> None:
        self.process = view[:8].cast("q")
        self.counts = view[8 : 8 * _COUNTS].cast("q")
        self.requests = view[8 * _COUNTS : _REQUEST_KEYS].cast("q")
        self.request_keys = Keys(view[_REQUEST_KEYS:_MODEL_KEYS])
        self.model_keys = Keys(view[_MODEL_KEYS:_TIMERS])
        self._blocks = view[_TIMERS:].cast("d")
        self._timers = timers

    @staticmethod
    def size(timers: int) -> int:
        """Bytes of a row with so many timers, and two for each model."""
        return mmap.PAGESIZE * math.ceil((_TIMERS + 8 * 3 * WIDTH * (timers + 2 * _MODELS)) / mmap.PAGESIZE)

    def timer(self, number: int) -> Blocks:
        """The three blocks of a timer."""
        return self._blocks[number * 3 * WIDTH : (number + 1) * 3 * WIDTH]

    def model_timers(self, number: int) -> tuple[Blocks, Blocks]:
        """The two timers of a model."""
        first = self._timers + 2 * number
        return self.timer(first), self.timer(first + 1)


def turn(timer: Blocks, now_s: float) -> None:
    """Begin a new window of a timer: keep what it has observed since the start as it is now."""
    until_s = (now_s // WINDOW_S + 1) * WINDOW_S
    if not timer[UNTIL] or until_s - timer[UNTIL] > WINDOW_S:  # nothing in the window before this one
        timer[LEAST], timer[MOST] = math.inf, 0.0
        timer[WIDTH : 2 * WIDTH] = timer[2 * WIDTH :] = timer[:WIDTH]
    else:
        older = WIDTH if timer[WIDTH + UNTIL] < timer[2 * WIDTH + UNTIL] else 2 * WIDTH
        timer[older : older + WIDTH] = timer[:WIDTH]
        timer[LEAST], timer[MOST] = math.inf, 0.0
    timer[UNTIL] = until_s


class Pending:
    """Times that are still to be noted in a timer of this process; append to `seconds`."""

    __slots__ = ("_buckets", "_timer", "seconds")

    def __init__(self, timer: Blocks) -> None:
        self.seconds: list[float] = []
        self._timer = timer
        self._buckets: Numbers = np.asarray(timer)[BUCKETS:WIDTH]

    def flush(self, now_s: float) -> None:
        """Note them."""
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
    """What some timers have observed together."""
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
