"""Loads on a client: a closed loop, where each answer lets the next request go, and an open one, which never waits for answers.

In the open loop a request counts from when it was due, not from when it was sent: a server that stalls makes all that is due
meanwhile late, and a client that waited for it would not have asked (coordinated omission).
"""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.arrivals import Times
from bench.queue_client import Answer

_GRACE_S = 60.0
_SWITCH_S = 0.0005
_SETTLING = 0.1
_FEWEST_GROUPS = 4

Seconds = NDArray[np.float64]


class Client(Protocol):
    """Sends numbered requests, `at_once` of them at most; `QueueClient` and `HttpClient`."""

    at_once: int

    def send(self, numbers: Sequence[int], lives_s: Sequence[float] | None = None) -> int:
        """Send these, each with so many seconds to be served in; how many were taken, from the first on."""
        ...

    def receive(self) -> list[Answer]:
        """Return the answers that have come; where there are none, wait a moment for some."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Closed(NamedTuple):
    """Figures of a closed loop: `rate_per_s` with the window full, answers, failures, CPU seconds of the client an answer."""

    rate_per_s: float
    answered: int
    failed: int
    cpu_s_per_answer: float


@dataclass
class Trace:
    """Course of an open loop, one element a request: seconds from the start (NaN: never).

    Attributes:
        due_s: time at which the request was to be sent.
        sent_s: time at which the request was sent; NaN where it was refused.
        done_s: time of its answer.
        failed: whether the answer was an error.
        life_ms: milliseconds that were left of its deadline when it was sent.
        answers: all answers, as they came.
    """

    due_s: Seconds
    sent_s: Seconds
    done_s: Seconds
    failed: NDArray[np.bool_]
    life_ms: Seconds
    answers: list[Answer] = field(default_factory=list[Answer])

    @classmethod
    def of(cls, due_s: Times) -> "Trace":
        """Of nothing yet."""
        nothing = np.full(due_s.size, np.nan)
        return cls(due_s, nothing, nothing.copy(), np.zeros(due_s.size, np.bool_), nothing.copy())


def closed_loop(client: Client, window: int, seconds: float) -> Closed:
    """Keep this many requests under way for so long, or until enough batches of answers have come for a rate."""
    began_s, used_s = time.perf_counter(), time.process_time()
    sent = _send_all(client, range(window))
    until_s = began_s + seconds
    groups: list[tuple[float, int]] = []
    answered = failed = 0
    while answered < sent:
        answers = client.receive()
        now_s = time.perf_counter()
        if now_s > until_s + _GRACE_S:
            raise SystemExit(f"{sent - answered} of {sent} requests are not answered {_GRACE_S:g} s after the load")
        answered += len(answers)
        failed += sum(bool(answer.error) for answer in answers)
        if now_s < until_s or len(groups) < _FEWEST_GROUPS:
            if now_s > began_s + _SETTLING * seconds and answers:
                groups.append((now_s, len(answers)))
            sent += _send_all(client, range(sent, sent + len(answers)))
    return Closed(steady_rate(groups), answered, failed, (time.process_time() - used_s) / answered)


def steady_rate(groups: Sequence[tuple[float, int]]) -> float:
    """Answers a second, of groups of them that came at these times: the slope of the line through how many there were.

    Answers come a batch at a time, and workers may be in step or not: from the first group to the last one there may be a batch
    of each worker too much.
    """
    if len(groups) < _FEWEST_GROUPS:
        raise SystemExit(f"only {len(groups)} batches of answers came: measure for longer")
    times_s, counts = np.array(groups).T
    return float(np.polyfit(times_s - times_s[0], np.cumsum(counts) - counts / 2, 1)[0])


def open_loop(client: Client, due_s: Times, deadline_s: float | None = None) -> Trace:
    """Send requests when they are due, and wait for what is still to come.

    Args:
        client: its `send` is called by this thread, its `receive` by another.
        due_s: seconds from now on, rising.
        deadline_s: how long after it was due a request is of use.
    """
    sys.setswitchinterval(_SWITCH_S)  # the thread that sends must not wait 5 ms for the one that receives
    trace = Trace.of(due_s)
    done = threading.Event()
    began_s = time.perf_counter()
    receiver = threading.Thread(target=_receive, args=(client, trace, began_s, done))
    receiver.start()
    try:
        _send(client, trace, began_s, deadline_s)
    finally:
        done.set()
        receiver.join()
    return trace


def _send(client: Client, trace: Trace, began_s: float, deadline_s: float | None) -> None:
    at, due_s = 0, trace.due_s
    while at < due_s.size:
        now_s = time.perf_counter() - began_s
        if due_s[at] > now_s:
            time.sleep(due_s[at] - now_s)
            continue
        end = min(int(np.searchsorted(due_s, now_s, "right")), at + client.at_once)
        lives_s = None
        if deadline_s is not None:
            lives_s = np.maximum(deadline_s - (now_s - due_s[at:end]), 0).tolist()
            trace.life_ms[at:end] = np.round(1000 * np.array(lives_s))
        trace.sent_s[at:end] = now_s
        taken = client.send(range(at, end), lives_s)
        trace.sent_s[at + taken : end] = np.nan
        at = end


def _receive(client: Client, trace: Trace, began_s: float, all_sent: threading.Event) -> None:
    idle_since_s = 0.0
    while not (all_sent.is_set() and len(trace.answers) >= np.count_nonzero(~np.isnan(trace.sent_s))):
        answers = client.receive()
        now_s = time.perf_counter() - began_s
        if answers or not all_sent.is_set():
            idle_since_s = now_s
        elif now_s - idle_since_s > _GRACE_S:
            return
        trace.answers += answers
        for answer in answers:
            trace.done_s[answer.number] = now_s
            trace.failed[answer.number] = bool(answer.error)


def _send_all(client: Client, numbers: range) -> int:
    for first in range(0, len(numbers), client.at_once):
        chunk = numbers[first : first + client.at_once]
        if client.send(chunk) < len(chunk):
            raise SystemExit("the queue is full: use a smaller window")
    return len(numbers)
