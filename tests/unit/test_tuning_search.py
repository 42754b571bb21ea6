"""The search, on machines that are arithmetic."""

import random
from collections.abc import Callable

import pytest

from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.errors import Refused, TuningError
from cluster_serving.node.tuning.search import Search, SearchProgress
from cluster_serving.node.tuning.traffic import Order, Tally

SIZES = (1, 2, 4, 8, 16, 32, 64)
SHAPES = [Shape(1, 1), Shape(2, 1), Shape(1, 2), Shape(4, 1), Shape(2, 2), Shape(1, 4)]


class Machine:
    """One on which a batch takes so many seconds; figures are off by up to `noise`."""

    def __init__(self, batch_s: Callable[[Shape, int], float], noise: float = 0.0, seed: int = 0) -> None:
        self._batch_s = batch_s
        self._noise = noise
        self._random = random.Random(seed)
        self.open_shapes: set[Shape] = set()
        self.most_open = self.measured = 0

    def open(self, shape: Shape, batch: int) -> None:
        """Of how many at once, is noted."""
        assert batch == SIZES[-1]
        self.open_shapes.add(shape)
        self.most_open = max(self.most_open, len(self.open_shapes))

    def measure(self, candidate: Candidate, seconds: float) -> Measured:
        """By arithmetic."""
        shape, batch = candidate
        assert shape in self.open_shapes
        self.measured += 1
        took_s = self._batch_s(shape, batch) * (1 + self._noise * self._random.uniform(-1, 1))
        return Measured(shape.workers * batch / took_s, 1000 * took_s, 1000 * took_s)

    def close(self, shape: Shape) -> None:
        """It has to be open."""
        self.open_shapes.remove(shape)


def compute_bound(shape: Shape, batch: int) -> float:
    """Each row takes its time; threads help less than workers."""
    return 0.001 + 0.01 * batch / float(shape.threads**0.8)


def overhead_bound(shape: Shape, batch: int) -> float:
    """All workers wait for one reader, whom a batch costs as much as eight rows."""
    return shape.workers * (0.0008 + 0.0001 * batch)


def searched(machine: Machine, objective: Objective | None = None) -> Candidate:
    found = Search(machine, objective or Objective(), SIZES, 0.1, SearchProgress()).run(SHAPES)
    assert machine.open_shapes == {found.shape}
    assert machine.most_open <= 2  # as many as a restart has
    return found


def best(batch_s: Callable[[Shape, int], float]) -> float:
    return max(shape.workers * size / batch_s(shape, size) for shape in SHAPES for size in SIZES)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("batch_s", [compute_bound, overhead_bound])
def test_choice_is_near_the_best_though_figures_are_off(batch_s: Callable[[Shape, int], float], seed: int) -> None:
    machine = Machine(batch_s, noise=0.03, seed=seed)

    (shape, batch) = searched(machine)

    assert shape.workers * batch / batch_s(shape, batch) > 0.93 * best(batch_s)
    assert machine.measured < 2.5 * len(SHAPES) * len(SIZES)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({32: 100, 64: 80, 16: 95, 8: 110}, 8),  # beyond a dip
        ({32: 100, 64: 80, 16: 110, 8: 105}, 16),  # the best of those that were tried, not the last
        ({32: 100, 64: 102}, 64),
        ({32: 100, 64: 100.5}, 32),  # as good
        ({32: 100, 64: 80, 16: 80, 8: 200}, 32),  # nobody looks so far
    ],
)
def test_batches_beside_the_usual_one(rates: dict[int, float], expected: int) -> None:
    machine = Machine(lambda shape, batch: batch / rates.get(batch, 50))

    assert Search(machine, Objective(), SIZES, 0.1, SearchProgress()).run([Shape(1, 1)]).batch == expected


def test_who_fails_in_the_middle_of_a_match_is_out() -> None:
    class FailsLater(Machine):
        def measure(self, candidate: Candidate, seconds: float) -> Measured:
            if candidate.shape == Shape(2, 1) and self.measured > 8:
                raise Refused("a process died under load")
            return super().measure(candidate, seconds)

    machine = FailsLater(lambda shape, batch: 0.01 * shape.workers)
    search = Search(machine, Objective(), SIZES, 0.1, SearchProgress())

    assert search.run([Shape(1, 1), Shape(2, 1)]).shape == Shape(1, 1)
    assert machine.open_shapes == {Shape(1, 1)}
    assert "a process died under load" in [tried.refused for tried in search.tried.values()]


def test_of_equals_the_simplest_is_chosen() -> None:
    assert searched(Machine(overhead_bound)).shape == Shape(1, 1)
    assert searched(Machine(compute_bound)).shape == Shape(4, 1)


def test_with_a_latency_a_batch_that_keeps_to_it_is_chosen() -> None:
    assert searched(Machine(compute_bound), Objective(50)) == Candidate(Shape(4, 1), 4)
    assert searched(Machine(compute_bound), Objective(15)) == Candidate(Shape(4, 1), 1)


def test_shape_that_cannot_be_had_is_left_out_and_told() -> None:
    class Small(Machine):
        def open(self, shape: Shape, batch: int) -> None:
            if shape.workers > 2:
                raise Refused("no memory")
            super().open(shape, batch)

    search = Search(machine := Small(compute_bound), Objective(), SIZES, 0.1, SearchProgress())

    found = search.run(SHAPES)

    assert found.shape.workers == 2
    assert [one.refused for one in search.tried.values() if one.candidate.shape == Shape(4, 1)] == ["no memory"]
    assert machine.open_shapes == {found.shape}


def test_nothing_that_can_be_measured() -> None:
    class Broken(Machine):
        def measure(self, candidate: Candidate, seconds: float) -> Measured:
            raise Refused("RuntimeError: out of cheese")

    with pytest.raises(TuningError, match="out of cheese"):
        Search(Broken(compute_bound), Objective(), SIZES, 0.1, SearchProgress()).run(SHAPES)


def test_exhaustive_search_measures_every_candidate() -> None:
    search = Search(Machine(overhead_bound), Objective(), SIZES, 0.1, SearchProgress(), exhaustive=True)

    search.run(SHAPES)

    assert len(search.tried) == len(SHAPES) * len(SIZES)


def order(**changes: float) -> Order:
    values = {"window": 8, "settle": 4, "seconds": 1.0, "least": 6, "most_s": 5.0} | changes
    return Order("job", "me", **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("exhaustive", [False, True])
def test_batch_that_fails_is_left_out(exhaustive: bool) -> None:
    class Fails(Machine):
        def measure(self, candidate: Candidate, seconds: float) -> Measured:
            if candidate.batch > 32:
                raise Refused("too large")
            return super().measure(candidate, seconds)

    machine = Fails(lambda shape, batch: 0.01 / shape.workers)
    search = Search(machine, Objective(), SIZES, 0.1, SearchProgress(), exhaustive=exhaustive)

    assert search.run([Shape(1, 1), Shape(2, 1)]) == Candidate(Shape(2, 1), 32)
    assert search.tried[Candidate(Shape(2, 1), 64)].refused == "too large"


def test_answers_count_from_when_the_lane_has_settled() -> None:
    tally = Tally(order(), 100.0)
    tally.hear([9.0] * 4, 100.5)
    tally.hear([0.25] * 4, 101.0)
    was_over = tally.over  # too few, and too soon

    tally.hear([0.25] * 4, 101.5)

    assert (was_over, tally.over) == (False, True)
    seen = tally.seen(0.5)
    assert (seen.rate, seen.p50_ms, seen.p99_ms, seen.busy) == pytest.approx((8.0, 250.0, 250.0, 0.5))


def test_the_rate_is_the_same_whether_workers_are_in_step_or_not() -> None:
    rates: list[float] = []
    for apart_s in (0.0, 0.1, 0.25, 0.4, 0.5):
        tally = Tally(order(), 0.0)
        for turn in range(12):
            for at_s in (0.5 * turn, 0.5 * turn + apart_s):
                tally.hear([0.25] * 4, at_s)
        rates.append(tally.seen(0.0).rate)

    assert rates == pytest.approx([16.0] * len(rates), rel=0.03)


def test_what_takes_too_long_is_over_with_fewer_answers() -> None:
    tally = Tally(order(), 100.0)
    tally.hear([1.0] * 4, 103.0)

    tally.hear([1.0], 105.5)

    assert tally.over
    assert tally.seen(0.0).rate == pytest.approx(1 / 2.5)
