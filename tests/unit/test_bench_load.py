"""Loads on a client that serves in its own process, so that what it does is known to the millisecond."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from bench.arrivals import fixed
from bench.latency import computed, fell_behind, figures_of, latencies_s
from bench.load import Trace, closed_loop, open_loop, steady_rate
from bench.queue_client import Answer
from numpy.typing import NDArray

from cluster_serving.client.wire.receipt import BatchReceipt, SplitReceipt

CAPACITY = 1000

Many = Sequence[float] | NDArray[Any]


class Server:
    """Answers what it was sent, in order, but for `stall_s` seconds after 50 answers; `send` never waits for that."""

    at_once = 8

    def __init__(self, stall_s: float = 0) -> None:
        self._stall_s = stall_s
        self._answered = 0
        self._sent: deque[int] = deque()
        self._news = threading.Event()

    def send(self, numbers: Sequence[int], lives_s: Sequence[float] | None = None) -> int:
        """Take all of them."""
        self._sent.extend(numbers)
        self._news.set()
        return len(numbers)

    def receive(self) -> list[Answer]:
        """Answer all that there are."""
        if self._answered >= 50:
            time.sleep(self._stall_s)
            self._stall_s = 0
        self._news.wait(0.01)
        self._news.clear()
        answers = [Answer(self._sent.popleft()) for _ in range(len(self._sent))]
        self._answered += len(answers)
        return answers

    def close(self) -> None:
        """Nothing is open."""


def trace(due_s: Many, done_s: Many, **changes: Many) -> Trace:
    found = Trace.of(np.array(due_s))
    found.done_s[:] = done_s
    found.sent_s[:] = changes.get("sent_s", due_s)
    found.failed[:] = changes.get("failed", [0] * len(due_s))
    found.life_ms[:] = changes.get("life_ms", [np.nan] * len(due_s))
    return found


def test_a_stall_of_the_server_makes_all_that_is_due_meanwhile_late() -> None:
    """A client that waits for each answer would have one slow call, and 149 that it never made."""
    due_s = fixed(500, 0.6)

    found = open_loop(Server(stall_s=0.3), due_s)

    late = np.count_nonzero(latencies_s(found) > 0.02)
    assert late >= 130
    assert latencies_s(found)[-1] >= 0.28
    assert figures_of(found, CAPACITY, None)["unanswered"] == 0


def test_a_closed_loop_counts_every_answer() -> None:
    found = closed_loop(Server(), window=4, seconds=0.2)

    assert found.failed == 0
    assert found.answered > 4
    assert found.rate_per_s > 0


def test_the_rate_is_the_same_whether_workers_are_in_step_or_not() -> None:
    in_step = [(second + shift, 10) for second in range(8) for shift in (0, 0.001)]
    in_turn = [(second + shift, 10) for second in range(8) for shift in (0, 0.5)]

    assert steady_rate(in_step) == pytest.approx(20, rel=0.01)
    assert steady_rate(in_turn) == pytest.approx(20, rel=0.01)


def test_too_few_answers_for_a_rate_are_said_to_be() -> None:
    with pytest.raises(SystemExit, match="measure for longer"):
        steady_rate([(0.0, 8), (1.0, 8)])


def test_latency_counts_from_when_a_request_was_due_and_to_the_end_where_it_failed() -> None:
    found = trace([0, 1, 2, 3], [0.1, 1.2, np.nan, 3.5], sent_s=[0.05, 1, 2, 3], failed=[0, 1, 0, 0])

    assert latencies_s(found).tolist() == pytest.approx([0.1, 0.5, 1.5, 2.5])


def test_quantiles_are_latencies_that_somebody_had() -> None:
    due_s = np.arange(1000.0)
    figures = figures_of(trace(due_s, due_s + np.arange(1000) / 1000), CAPACITY, None)

    assert (figures["p50_ms"], figures["p99_ms"], figures["p99_9_ms"]) == pytest.approx((500, 990, 999))


def test_a_late_or_refused_sending_is_told() -> None:
    figures = figures_of(trace([0, 1, 2, 3], [1, 2, 3, 4], sent_s=[0, 1.002, np.nan, 3]), CAPACITY, None)

    assert figures["late_share"] == 0.5
    assert figures["most_late_ms"] == pytest.approx(2)
    assert figures["refused"] == 1


def test_a_sender_that_gets_later_and_later_fell_behind_and_one_that_paused_did_not() -> None:
    due_s = np.arange(100.0)
    paused = due_s.copy()
    paused[50:55] += 1

    assert fell_behind(trace(due_s, due_s, sent_s=due_s * 1.1))
    assert not fell_behind(trace(due_s, due_s, sent_s=paused))


def test_goodput_is_what_was_answered_within_the_deadline_under_load() -> None:
    """Of five requests a second: one fails, one is too late, and the first second does not count."""
    due_s = np.arange(50) / 5
    done_s = due_s + 0.1
    failed = np.arange(50) % 5 == 3
    done_s[np.arange(50) % 5 == 4] += 1

    figures = figures_of(trace(due_s, done_s, failed=failed), 5, 1.0)

    assert figures["goodput_of_capacity"] == pytest.approx(0.6, abs=0.03)
    assert figures["answered_of_capacity"] == pytest.approx(0.8, abs=0.03)


def test_receipts_tell_what_was_computed_too_late() -> None:
    """Records of 100 ms that began after 50, 90 and 130 ms and ran for 20 ms; one that was dropped before."""
    receipts = [
        SplitReceipt(b"1000-0", 1001, 1, BatchReceipt("n", "m", 0, 0, 1, 1000 + begun - 5, 5, 20, 1).encode())
        for begun in (50, 90, 130, 150)
    ]
    late = b'{"code":"DeadlineExceeded","message":"the deadline had passed 10 ms before %b"}'
    errors = (b"", late % b"the result could be published", b"", late % b"a worker could begin with it")
    found = trace([0, 1, 2, 3], [0.1, 1.1, 2.1, 3.1], life_ms=[100] * 4, failed=[0, 1, 0, 1])
    found.answers = [Answer(number, errors[number], receipts[number]) for number in range(4)]

    assert [each.begun_late_ms for each in computed(found)] == [-50, -10, 30]
    figures = figures_of(found, CAPACITY, 0.1)
    assert (figures["begun_late"], figures["begun_late_most_runs"]) == (1, 1.5)
    assert figures["wasted_share"] == pytest.approx(2 / 3)
