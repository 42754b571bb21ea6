"""A place in a frontend: when the next process is started."""

import time

import pytest

from cluster_serving.frontend.server.child import Child
from cluster_serving.frontend.server.seat import Seat


def nobody() -> Child:
    raise OSError("no process left")


def test_the_first_child_is_due_at_once() -> None:
    assert Seat(0, nobody).is_due


def test_a_child_that_cannot_be_started_is_due_after_the_longest_pause() -> None:
    seat = Seat(0, nobody)

    begun_s = time.monotonic()

    with pytest.raises(OSError, match="no process left"):
        seat.start()

    assert begun_s + 5 <= seat.due_s <= time.monotonic() + 5


def test_each_successor_waits_for_longer() -> None:
    seat = Seat(0, nobody)

    delays_s = [seat.wait() for _ in range(12)]

    # Each is shortened by up to a half at random, so that only every second one is certainly longer.
    assert all(later > earlier for earlier, later in zip(delays_s[:5], delays_s[2:7], strict=True))
    assert all(2.5 <= delay_s <= 5 for delay_s in delays_s[6:])
    assert not seat.is_due
    seat.due_s = time.monotonic()
    assert seat.is_due
