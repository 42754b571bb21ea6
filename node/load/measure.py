"""Measurement of a load: windows until the load is stable, with more sending processes where one is not enough."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from cluster_serving.node.load.messages import Order, Tick
from cluster_serving.node.load.processes import SendingProcesses
from cluster_serving.node.load.windows import STABLE, Window, Windows, is_stable

LONGEST_S = 60.0
"""Seconds after which a load ends that does not become stable."""
_BUSY = 0.85  # share of a core from which on a sending process may be too slow
_SETTLING = 1  # windows that never count: connections are made, and lanes fill


@dataclass
class Measured:
    """Round of a load.

    Attributes:
        windows: all windows, in order.
        counted: windows that are the result.
        is_stable: True if the load had settled.
        processes: number of sending processes.
        messages: text of the first error of each code.
        began: time of the begin, ISO 8601.
        is_interrupted: True if Ctrl-C ended the load.
        error: last words of a sending process that could not go on, or None.
    """

    processes: int
    began: str
    windows: list[Window]
    messages: dict[str, str]
    counted: Sequence[Window] = ()
    is_stable: bool = False
    is_interrupted: bool = False
    error: Tick | None = None


def measure(
    order: Order, seconds: float | None, processes: int | None, rounds: int, seen: Callable[[Window], None]
) -> list[Measured]:
    """Carry out a load, and return its rounds. An error or Ctrl-C ends the last round.

    Args:
        order: load of all sending processes together.
        seconds: measured seconds of a round, after a window for settling. None: until the load is stable, at most a minute.
        processes: number of sending processes. None: one, or as many as keep up.
        rounds: number of times that the load begins anew.
        seen: called with each window.
    """
    number = processes or 1
    most = max(number, 1 if processes else (os.cpu_count() or 1))
    found: list[Measured] = []
    while len(found) < rounds:
        measured = _measured(
            msgspec.structs.replace(order, seed=len(found) * most), seconds, number, number < most, seen
        )
        if measured is None:
            number = min(2 * number, most)
            continue
        found.append(measured)
        if measured.error or measured.is_interrupted:
            break
    return found


def split(order: Order, processes: int) -> list[Order]:
    """Return the part of each sending process. No part is empty, so there may be fewer parts than processes."""
    processes = min(processes, order.connections)
    whole, rest = divmod(order.connections, processes)
    return [
        msgspec.structs.replace(
            order, connections=whole + (at < rest), rate=order.rate / processes, seed=order.seed + at
        )
        for at in range(processes)
    ]


def _measured(
    order: Order, seconds: float | None, processes: int, may_grow: bool, seen: Callable[[Window], None]
) -> Measured | None:
    """Return a measured load. None: the sending processes were too slow in the first window, and there may be more."""
    orders = split(order, processes)
    is_open = bool(order.rate)
    windows = Windows(len(orders), 0 if is_open else 2 * order.connections)
    found = Measured(len(orders), datetime.now(UTC).isoformat(timespec="seconds"), windows.windows, windows.messages)
    try:
        with SendingProcesses(orders) as load:
            for process, tick in load.ticks():
                if tick.error:
                    found.error = tick
                    break
                if not windows.add(process, tick):
                    continue
                seen(windows.windows[-1])
                first = windows.windows[0]
                if may_grow and len(windows.windows) == 1 and (first.busy > _BUSY or first.is_behind):
                    return None
                if _is_over(windows.windows, seconds, is_open):
                    break
    except KeyboardInterrupt:
        found.is_interrupted = True
    found.messages = windows.messages
    ended_stable = seconds is None and _is_over(found.windows, None, is_open)
    found.counted = found.windows[-STABLE:] if ended_stable else found.windows[_SETTLING:] or found.windows
    found.is_stable = is_stable(found.counted, is_open=is_open)
    return found


def _is_over(windows: Sequence[Window], seconds: float | None, is_open: bool) -> bool:
    if seconds is None:
        if sum(window.seconds for window in windows) >= LONGEST_S:
            return True
        return len(windows) >= _SETTLING + STABLE and is_stable(windows[-STABLE:], is_open=is_open)
    return sum(window.seconds for window in windows[_SETTLING:]) >= seconds
