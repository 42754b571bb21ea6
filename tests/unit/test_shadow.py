"""The shadow: its share of the rows, what it counts, and when it warns."""

import shlex
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from structlog.testing import capture_logs

from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.shadow.live_records import Row
from cluster_serving.node.shadow.shadow import Judge, Shadow, Shares

BATCH = 8


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring(Geometry(slots=2, batch=BATCH, slot_bytes=4096, workers=1))
    yield made
    made.close()


def shadow(ring: Ring, agrees: Callable[[float], bool], wanted: float = 0.99, job: str = "job") -> Shadow:
    """A shadow of a model that is served with a fault."""

    def served(row: Row) -> Row:
        if row["x"] < 0:
            raise ValueError("x is negative")
        return row

    return Shadow(served, dict, lambda _expected, found: agrees(float(found["x"])), ring, wanted, job)


def row(value: float) -> Row:
    return {"x": np.array(value, np.float32)}


def test_the_command_of_its_warning_can_be_pasted(ring: Ring) -> None:
    one = shadow(ring, lambda _: False, job="my job")

    with capture_logs() as lines:
        for _ in range(500):
            one.compare(row(1))

    (line,) = lines
    assert shlex.split(line["mend"])[:3] == ["cluster-serving", "restart", "my job"]


@pytest.mark.parametrize("share", [1.0, 0.3, 0.01])
def test_its_share_of_all_rows_is_drawn(share: float) -> None:
    ran = drawn = 0
    shares = Shares(share, lambda: ran)
    for _ in range(1000):
        ran += BATCH
        shares.count()
        drawn += len(found := shares.draw(range(BATCH)))
        assert len(set(found)) == len(found)
        assert set(found) <= set(range(BATCH))

    assert drawn == pytest.approx(share * ran, abs=1)


def test_rows_that_were_not_seen_are_made_up_for_in_part_only() -> None:
    ran = 0
    shares = Shares(1.0, lambda: ran)
    ran = 100_000
    shares.count()

    assert len(shares.draw(range(1000))) == 64


def test_the_ring_has_the_counts_and_a_successor_goes_on_with_them(ring: Ring) -> None:
    for _ in range(2):
        one = shadow(ring, lambda value: value != 3)
        for value in range(10):
            one.compare(row(value))

    assert (ring.shadowed, ring.shadow_agreeing) == (20, 18)


def test_a_record_that_fails_is_told_once_and_not_counted(ring: Ring) -> None:
    one = shadow(ring, lambda _: True)
    with capture_logs() as lines:
        for value in (-1, 1, -1, 2):
            one.compare(row(value))

    assert (ring.shadowed, ring.shadow_agreeing) == (2, 2)
    assert [line["reason"] for line in lines] == ["x is negative"]


@pytest.mark.parametrize(("differing", "warnings"), [(5, 0), (6, 1)])
def test_it_warns_when_too_few_of_the_last_records_agree(ring: Ring, differing: int, warnings: int) -> None:
    one = shadow(ring, lambda value: value >= differing)
    with capture_logs() as lines:
        for value in range(1000):
            one.compare(row(value))

    assert len(lines) == warnings
    assert all((line["agreeing"], line["records"]) == ("98.8 %", 500) for line in lines)


def test_an_arg_max_agrees_and_a_value_alone_within_the_tolerance_of_the_largest_so_far() -> None:
    judge = Judge(0.01)

    def agree(expected: list[float], found: list[float]) -> bool:
        return judge.agree({"y": np.array([expected], np.float32)}, {"y": np.array([found], np.float32)})

    assert agree([1, 2], [1.6, 1.7])
    assert not agree([1, 2], [1.7, 1.6])
    assert not agree([0.0009], [0.00093])
    assert agree([1.0], [0.995])
    assert agree([0.0009], [0.00093])
    assert not agree([0.5], [float("nan")])


def test_infinity_and_nan_agree_with_themselves_and_say_nothing_of_the_size_of_later_values() -> None:
    judge, inf, nan = Judge(0.01), np.inf, np.nan

    def agree(expected: list[float], found: list[float]) -> bool:
        return judge.agree({"y": np.array([expected], np.float32)}, {"y": np.array([found], np.float32)})

    assert agree([inf], [inf])
    assert agree([nan], [nan])
    assert not agree([1.0], [5.0])
    assert not agree([1.0], [inf])
    assert not agree([inf], [1.0])
    assert not agree([inf], [-inf])
    assert not agree([nan], [1.0])


def test_each_output_is_judged_by_itself() -> None:
    judge = Judge(0.001)

    def agree(scores: list[float], value: float) -> bool:
        expected = {"scores": np.array([[1, 2]], np.float32), "value": np.array([[7]], np.float32)}
        return judge.agree(
            expected, {"scores": np.array([scores], np.float32), "value": np.array([[value]], np.float32)}
        )

    assert agree([1.5, 1.6], 7)
    assert not agree([1.6, 1.5], 7)
    assert not agree([1.5, 1.6], 7.1)


@pytest.mark.parametrize(("found", "agrees"), [([-np.inf, 1.9], True), ([0.0, 1.9], True), ([-np.inf, np.inf], False)])
def test_values_that_the_model_masks_agree(found: list[float], agrees: bool) -> None:
    expected = {"y": np.array([[-np.inf, 2]], np.float32)}

    assert Judge(0.01).agree(expected, {"y": np.array([found], np.float32)}) is agrees
