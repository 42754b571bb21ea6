"""A place in a lane: whoever dies again and again is started again later and later."""

import time

import pytest

from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.seat import Seat


def nobody() -> Child:
    raise OSError("no process left")


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes but that of the test."""
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)


def delay_s(seat: Seat) -> float:
    """Let another start fail, and return the seconds that the seat waits from now on."""
    with pytest.raises(OSError, match="no process left"):
        seat.start()
    return seat.due_s - time.monotonic()


def test_the_next_child_waits_for_longer_than_the_one_before() -> None:
    seat = Seat("worker-0", nobody)

    delays = [delay_s(seat) for _ in range(12)]

    # Each is shortened by up to a half at random, so that only every second one is certainly longer.
    assert all(later > earlier for earlier, later in zip(delays[:4], delays[2:6], strict=True))
    assert all(0.9 < delay <= 2 for delay in delays[5:])


def is_due(seat: Seat) -> bool:
    return seat.is_due


def test_it_is_due_when_it_is_wanted_and_has_waited() -> None:
    seat = Seat("worker-0", nobody)
    assert not is_due(seat)

    delay_s(seat)

    assert not is_due(seat)
    seat.due_s = time.monotonic()
    assert is_due(seat)
    seat.dismiss()
    assert not is_due(seat)
