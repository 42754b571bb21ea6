"""Conditions under which a child counts as hung."""

import math
import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from cluster_serving.node.ring.metrics import FIRST_WORKER, READER, WRITER
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.supervisor.hangs import HangDetector
from cluster_serving.node.supervisor.stacks import dump

LONG_AGO = 1e-3
LIMIT_S = 5.0


class Clock:
    """Real time, and what a test adds to it."""

    ahead_s = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return time.monotonic() + self.ahead_s


@pytest.fixture
def ring() -> Ring:
    return Ring(Geometry(slots=3, batch=2, slot_bytes=4096, workers=1))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(ring: Ring, clock: Clock) -> HangDetector:
    return HangDetector(ring, LIMIT_S, LIMIT_S, clock)


def child(ready_s: float = LONG_AGO, started_s: float = 0.0) -> Any:
    return SimpleNamespace(ready_s=ready_s, started_s=started_s)


def give(ring: Ring, slot: int = 0) -> None:
    ring.move("reader", slot, State.FILLING)
    ring.slots[slot].fill(b"", [], 0)
    ring.hand_over("reader", slot, 0, slot + 1)


def wait(watch: HangDetector, clock: Clock, seconds: float = LIMIT_S + 1) -> None:
    """Let time pass under the supervisor's eyes."""
    for _ in range(math.ceil(seconds)):
        clock.ahead_s += 1
        watch.look()


def test_a_worker_without_work_never_hangs(watch: HangDetector, clock: Clock) -> None:
    wait(watch, clock)

    assert not watch.worker_hangs(0, child(), None)


def test_a_worker_hangs_that_has_had_work_for_too_long(ring: Ring, watch: HangDetector, clock: Clock) -> None:
    give(ring)
    assert not watch.worker_hangs(0, child(), None)

    wait(watch, clock)

    assert watch.worker_hangs(0, child(), None)
    assert not watch.worker_hangs(0, child(clock()), None), "one that has just become ready has all its time"


def test_whoever_connects_does_not_hang_however_slow_the_name_server_is(
    ring: Ring, watch: HangDetector, clock: Clock
) -> None:
    wait(watch, clock)
    assert watch.reader_hangs(child())
    assert watch.writer_hangs(child(), LONG_AGO)

    with ring.connecting(READER), ring.connecting(WRITER):
        wait(watch, clock, 60)

        assert not watch.reader_hangs(child())
        assert not watch.writer_hangs(child(), LONG_AGO)
    assert ring.silent_s(READER) >= 0, "from now on its silence counts"


def test_a_sign_of_life_counts(ring: Ring, watch: HangDetector, clock: Clock) -> None:
    give(ring)
    wait(watch, clock)

    ring.beat(FIRST_WORKER)

    assert not watch.worker_hangs(0, child(), None)


def test_a_worker_that_was_told_to_leave_hangs_when_it_stays(watch: HangDetector, clock: Clock) -> None:
    wait(watch, clock)

    assert watch.worker_hangs(0, child(), LONG_AGO)
    assert not watch.worker_hangs(0, child(), clock())


def test_time_in_which_nobody_looked_does_not_count(ring: Ring, watch: HangDetector, clock: Clock) -> None:
    give(ring)

    clock.ahead_s += 3
    watch.look()

    assert not watch.worker_hangs(0, child(), None)
    wait(watch, clock)
    assert watch.worker_hangs(0, child(), None)


def test_a_reader_hangs_when_it_is_silent(ring: Ring, watch: HangDetector, clock: Clock) -> None:
    wait(watch, clock)
    assert watch.reader_hangs(child())

    ring.beat(READER)

    assert not watch.reader_hangs(child())


def test_a_writer_hangs_when_it_is_silent_with_something_to_publish(
    ring: Ring, watch: HangDetector, clock: Clock
) -> None:
    wait(watch, clock)
    assert not watch.writer_hangs(child(), None)
    assert watch.writer_hangs(child(), LONG_AGO), "it was told to leave"

    give(ring)
    ring.move("worker", 0, State.RUNNING)
    ring.move("worker", 0, State.DONE)
    wait(watch, clock)

    assert watch.writer_hangs(child(), None)
    ring.beat(WRITER)
    assert not watch.writer_hangs(child(), None)


def test_no_stacks_of_a_process_that_is_gone() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)

    assert dump(pid) == ""


def test_a_child_that_takes_far_longer_to_start_than_others_hangs(watch: HangDetector, clock: Clock) -> None:
    """A tenfold of the slowest boot, and what any of its turns may take."""
    now_s = clock()
    watch.booted(child(now_s, now_s - 2))
    watch.booted(child(now_s, now_s - 1))
    booting = child(0.0, clock())
    for _ in range(4):
        wait(watch, clock)

    assert watch.boot_patience_s == pytest.approx(2 * LIMIT_S + 20)
    assert not watch.boot_hangs(FIRST_WORKER, booting)
    for _ in range(2):
        wait(watch, clock)
    assert watch.boot_hangs(FIRST_WORKER, booting)


def test_a_reader_that_waits_for_redis_in_its_start_does_not_hang(
    ring: Ring, watch: HangDetector, clock: Clock
) -> None:
    booting = child(0.0, clock())
    for _ in range(6):
        wait(watch, clock)

    ring.beat(READER)

    assert not watch.boot_hangs(READER, booting)
