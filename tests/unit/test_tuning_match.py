"""Rivals in turns, measured by arithmetic and chance."""

import random
from collections.abc import Mapping, Sequence

import pytest

from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.match import Match


def candidate(workers: int, threads: int, batch: int) -> Candidate:
    return Candidate(Shape(workers, threads), batch)


SIMPLE, COSTLY, COSTLIER = candidate(1, 1, 32), candidate(1, 1, 64), candidate(2, 1, 32)


def rate(value: float) -> Measured:
    return Measured(value, 1.0, 2.0)


def winner(middles: Mapping[Candidate, Measured], objective: Objective | None = None) -> tuple[Candidate, int]:
    """Return the candidate that wins where every round is the same, and the number of rounds that this takes."""
    match = Match(list(middles), objective or Objective())
    rounds = 0
    while len(match.rivals) > 1:
        match.hear(middles)
        rounds += 1
    return match.rivals[0], rounds


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((100, 100.5, 0), (SIMPLE, 4)),
        ((100, 102, 0), (COSTLY, 7)),
        ((100, 0, 104), (SIMPLE, 4)),
        ((100, 0, 106), (COSTLIER, 7)),
        ((100, 103, 106), (COSTLY, 7)),  # each against the other
        ((100, 103, 109), (COSTLIER, 7)),
        ((100, 50, 50), (SIMPLE, 4)),
    ],
)
def test_the_simplest_wins_unless_another_one_is_better_by_more_than_a_tie(
    rates: Sequence[float], expected: tuple[Candidate, int]
) -> None:
    assert winner(dict(zip((SIMPLE, COSTLY, COSTLIER), map(rate, rates), strict=True))) == expected


def test_a_round_that_was_off_by_far_counts_as_one() -> None:
    match = Match([SIMPLE, COSTLY], Objective())
    match.hear({SIMPLE: rate(100), COSTLY: rate(10)})
    for _ in range(7):
        match.hear({SIMPLE: rate(100), COSTLY: rate(110)})
    assert len(match.rivals) == 2

    match.hear({SIMPLE: rate(100), COSTLY: rate(110)})

    assert match.rivals == [COSTLY]


def test_a_match_ends_when_the_rounds_that_are_left_cannot_change_it() -> None:
    match = Match([SIMPLE, COSTLY], Objective())
    for number in range(17):
        match.hear({SIMPLE: rate(100), COSTLY: rate(90 if number % 2 else 110)})
    assert len(match.rivals) == 2

    match.hear({SIMPLE: rate(100), COSTLY: rate(110)})

    assert match.rivals == [COSTLY]


def test_who_is_not_measured_is_out() -> None:
    match = Match([SIMPLE, COSTLY, COSTLIER], Objective())

    match.hear({COSTLY: rate(1), COSTLIER: rate(1)})
    assert match.rivals == [COSTLY, COSTLIER]

    match.hear({})
    assert match.rivals == []


def test_with_a_latency_the_fastest_that_keeps_to_it_wins() -> None:
    one, eight, many = candidate(1, 1, 1), candidate(1, 1, 8), candidate(1, 1, 64)
    middles = {eight: Measured(300, 5, 9), one: Measured(100, 1, 2), many: Measured(900, 20, 50)}

    assert winner(middles, Objective(10))[0] == eight
    assert winner(middles, Objective(100))[0] == many
    assert winner(middles, Objective(1))[0] == one  # none does: the one that comes nearest


@pytest.mark.parametrize(("gain", "expected"), [(-0.01, SIMPLE), (0.055, COSTLY)])
def test_the_same_one_wins_nearly_always_though_turns_differ(gain: float, expected: Candidate) -> None:
    chance = random.Random(f"seed {gain}")

    def off() -> float:
        """As turns of one second differed on a machine that others use too: by 4 %, and every tenth by half."""
        return chance.gauss(1, 0.04) * (chance.uniform(0.5, 1) if chance.random() < 0.1 else 1)

    won = 0
    for _ in range(200):
        match = Match([SIMPLE, COSTLY], Objective())
        while len(match.rivals) > 1:
            match.hear({SIMPLE: rate(100 * off()), COSTLY: rate(100 * (1 + gain) * off())})
        won += match.rivals[0] == expected

    assert won >= 160
