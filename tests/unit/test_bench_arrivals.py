import numpy as np
import pytest
from bench.arrivals import ARRIVALS, BURST, bursts, fixed, poisson


def test_a_fixed_rate_has_the_same_gap_everywhere() -> None:
    assert fixed(4, 1.5).tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]


def test_the_gaps_of_a_poisson_process_vary_as_much_as_they_are_long() -> None:
    gaps = np.diff(poisson(1000, 20, seed=1))

    assert gaps.mean() == pytest.approx(0.001, rel=0.05)
    assert gaps.std() == pytest.approx(0.001, rel=0.1)


def test_bursts_come_all_at_once_and_keep_the_rate() -> None:
    times = bursts(1000, 20, seed=1)

    groups, sizes = np.unique(times, return_counts=True)
    assert set(sizes) == {BURST}
    assert times.size == pytest.approx(20_000, rel=0.1)
    assert np.diff(groups).std() == pytest.approx(BURST / 1000, rel=0.2)


@pytest.mark.parametrize("name", ARRIVALS)
def test_a_schedule_rises_ends_in_time_and_is_its_seeds(name: str) -> None:
    times = ARRIVALS[name](500, 3, 7)

    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 3
    assert np.array_equal(times, ARRIVALS[name](500, 3, 7))
