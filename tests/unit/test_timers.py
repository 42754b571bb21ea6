"""Measurements of the processes of a frontend: buckets, windows, and rows that several processes write."""

import math
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from cluster_serving.frontend.metrics.buckets import BOUNDS_S, LE_S, NONE
from cluster_serving.frontend.metrics.timer_row import OTHER, WINDOW_S
from cluster_serving.frontend.metrics.timers import Count, Timer, Timers


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Now."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timers(clock: Clock) -> Iterator[Timers]:
    timers = Timers(3, clock=clock)
    yield timers
    os.close(timers.fd)


def test_every_timer_and_count_is_there_from_the_start(timers: Timers, clock: Clock) -> None:
    clock.now_s += 5

    reading = timers.read()

    assert reading.timers.keys() == set(Timer)
    assert all((times.count, times.total_s, times.most_s) == (0, 0, 0) for times in reading.timers.values())
    assert reading.counts == dict.fromkeys(Count, 0)
    assert (reading.uptime_s, reading.processes, reading.models, reading.requests) == (5, 0, {}, {})


def test_processes_are_added_up(timers: Timers) -> None:
    for process, seconds in enumerate((0.001, 0.002, 0.006)):
        timers.of(process).observe(Timer.PREDICT, seconds)

    times = timers.read().timers[Timer.PREDICT]

    assert times.count == 3
    assert times.total_s == pytest.approx(0.009)
    assert times.mean_s == pytest.approx(0.003)
    assert times.deviation_s == pytest.approx(np.std([0.001, 0.002, 0.006]))
    assert (times.least_s, times.most_s) == (0.001, 0.006)
    assert timers.read().timers[Timer.OVERALL].count == 0


def test_bounds_grow_by_no_more_than_a_tenth_and_have_those_of_prometheus() -> None:
    ratios = [upper / lower for lower, upper in pairwise(BOUNDS_S)]

    assert 1 < min(ratios) <= max(ratios) < 1.1001
    assert set(LE_S) < set(BOUNDS_S)
    assert (BOUNDS_S[0], BOUNDS_S[-1]) == (1e-5, 120)


@pytest.mark.parametrize("seconds", [0.0, 1e-7, 1e-5, 0.0005, 0.00050001, 1.0, 100.0, 100.1, 119.0, 121.0, 1e6])
def test_a_time_is_counted_up_to_the_first_bound_that_is_not_below_it(timers: Timers, seconds: float) -> None:
    timers.of(0).observe(Timer.OVERALL, seconds)

    assert timers.read().timers[Timer.OVERALL].up_to() == [*(int(seconds <= bound) for bound in LE_S), 1]


@pytest.mark.slow
def test_quantiles_are_off_by_a_twentieth_at_most(timers: Timers) -> None:
    seed = 7
    chosen = random.Random(seed)
    sample = sorted(min(chosen.lognormvariate(-5, 1.5), 119) for _ in range(20_000))
    for place, seconds in enumerate(sample):
        timers.of(place % 3).observe(Timer.REDIS_WAIT, seconds)

    found = timers.read().timers[Timer.REDIS_WAIT]

    for share in (0.5, 0.75, 0.95, 0.98, 0.99, 0.999):
        expected = sample[math.ceil(share * len(sample)) - 1]
        assert found.quantile_s(share) == pytest.approx(expected, rel=0.05), (seed, share)


@pytest.mark.parametrize("seconds", [3e-6, 0.0123, 500.0])
def test_quantiles_of_one_time_are_that_time(timers: Timers, seconds: float) -> None:
    timers.of(0).observe(Timer.PREDICT, seconds)
    times = timers.read().timers[Timer.PREDICT]

    assert {times.quantile_s(share) for share in (0.0, 0.5, 0.999)} == {seconds}


def test_nothing_has_zero_for_everything() -> None:
    assert (NONE.count, NONE.mean_s, NONE.deviation_s, NONE.quantile_s(0.99)) == (0, 0, 0, 0)


def test_times_are_recent_for_one_window_more_than_their_own(timers: Timers, clock: Clock) -> None:
    clock.now_s = 10 * WINDOW_S
    mine = timers.of(0)
    mine.observe(Timer.PREDICT, 9.0)
    mine.flush()

    clock.now_s = 11 * WINDOW_S
    mine.observe(Timer.PREDICT, 1.0)
    next_window = timers.read().timers[Timer.PREDICT]
    clock.now_s = 12 * WINDOW_S
    mine.observe(Timer.PREDICT, 2.0)
    last_window = timers.read().timers[Timer.PREDICT]

    assert (next_window.most_s, next_window.mean_s) == (9.0, 5.0)
    assert (last_window.least_s, last_window.most_s, last_window.mean_s) == (1.0, 2.0, 1.5)
    assert last_window.quantile_s(1) == 2.0
    assert (last_window.count, last_window.total_s) == (3, 12.0)


def test_after_a_pause_only_what_follows_is_recent(timers: Timers, clock: Clock) -> None:
    mine = timers.of(0)
    mine.observe(Timer.PREDICT, 9.0)
    mine.flush()
    clock.now_s += 2 * WINDOW_S

    before = timers.read().timers[Timer.PREDICT]
    mine.observe(Timer.PREDICT, 1.0)
    after = timers.read().timers[Timer.PREDICT]

    assert (before.mean_s, before.most_s) == (9.0, 9.0)  # a timer that rests keeps what it has
    assert (after.mean_s, after.least_s, after.most_s, after.count) == (1.0, 1.0, 1.0, 2)


def test_a_process_that_takes_a_row_over_goes_on_where_it_was_left(timers: Timers) -> None:
    first = timers.of(1)
    first.observe(Timer.OVERALL, 0.5)
    first.flush()
    first.count(Count.RECORDS, 7)
    first.count(Count.IN_FLIGHT)
    first.count_request("predict", 200)

    second = Timers(3, timers.fd).of(1)
    second.observe(Timer.OVERALL, 0.5)
    second.flush()
    second.count(Count.RECORDS)
    second.count_request("predict", 200)
    second.count_request("predict", 429)
    reading = timers.read()

    assert reading.timers[Timer.OVERALL].count == 2
    assert reading.counts[Count.RECORDS] == 8
    assert reading.counts[Count.IN_FLIGHT] == 0
    assert reading.requests == {("predict", "200"): 2, ("predict", "429"): 1}


def test_routes_are_added_up_over_processes_that_met_them_in_another_order(timers: Timers) -> None:
    timers.of(0).count_request("predict", 200)
    timers.of(0).count_request("models", 404)
    timers.of(1).count_request("models", 404)

    assert timers.read().requests == {("predict", "200"): 1, ("models", "404"): 2}


def test_models_are_timed_apart(timers: Timers) -> None:
    timers.of(0).observe_model("a", "1", 0.2, 0.1)
    timers.of(1).observe_model("b", "1", 0.5, None)
    timers.of(1).observe_model("a", "1", 0.4, 0.3)

    models = timers.read().models

    assert models.keys() == {("a", "1"), ("b", "1")}
    assert [times.total_s for times in models["a", "1"]] == pytest.approx([0.6, 0.4])
    assert [times.count for times in models["b", "1"]] == [1, 0]


def test_models_without_room_are_timed_together(timers: Timers) -> None:
    mine = timers.of(0)
    for number in range(100):
        mine.observe_model(f"model-{number}", "1", 1.0, None)
    mine.observe_model("long" * 100, "1", 1.0, None)

    models = timers.read().models

    assert len(models) == 64
    assert models[OTHER][0].count == 101 - 63
    assert sum(calls.count for calls, _ in models.values()) == 101


def test_names_may_have_any_character(timers: Timers) -> None:
    timers.of(0).observe_model('mödel "x"\n.\0', "1", 1.0, None)

    assert timers.read().models.keys() == {('mödel "x"\n.\0', "1")}


_WRITER = """
import sys
from cluster_serving.frontend.metrics.timers import Count, Timer, Timers
mine = Timers(3, int(sys.argv[1])).of(int(sys.argv[2]))
mine.count(Count.IN_FLIGHT)
for _ in range(5000):
    mine.observe(Timer.PREDICT, 0.01)
    mine.count_request("predict", 200)
mine.flush()
print("done", flush=True)
sys.stdin.read()
"""


def _write(timers: Timers, process: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-P", "-c", _WRITER, str(timers.fd), str(process)]
    return subprocess.Popen(command, pass_fds=[timers.fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_processes_share_the_memory_and_one_that_is_killed_loses_nothing_that_was_flushed() -> None:
    timers = Timers(3)
    begun = [_write(timers, process) for process in range(2)]
    assert [each.stdout and each.stdout.readline() for each in begun] == [b"done\n", b"done\n"]
    both = timers.read()
    begun[0].kill()
    begun[0].communicate()
    one = timers.read()
    begun.append(_write(timers, 0))
    assert begun[2].stdout
    assert begun[2].stdout.readline() == b"done\n"
    again = timers.read()
    for each in begun:
        each.communicate()
    os.close(timers.fd)

    assert [reading.processes for reading in (both, one, again)] == [2, 1, 2]
    assert [reading.counts[Count.IN_FLIGHT] for reading in (both, one, again)] == [2, 1, 2]
    assert [reading.timers[Timer.PREDICT].count for reading in (both, one, again)] == [10_000, 10_000, 15_000]
    assert again.requests == {("predict", "200"): 15_000}
