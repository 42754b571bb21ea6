"""The reader's next step: the rows of the table in `intake.py`, and promises that hold in every situation."""

from collections import Counter, deque
from itertools import cycle, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_serving.node.reader.intake import Facts, Step, is_suspect, next_step

ALL_FACTS = [Facts(*values) for values in product((False, True), repeat=len(Facts.__struct_fields__))]
# An empty lane has a free slot.
LANES = {"empty": (True, True), "works, has room": (True, False), "works, is full": (False, False)}
TAKES = {Step.READ, Step.CLAIM, Step.CLAIM_SUSPECT}


def decide(facts: Facts, lane: str = "empty") -> Step:
    has_room, is_empty = LANES[lane]
    return next_step(facts, lambda: has_room, lambda: is_empty)


@pytest.mark.parametrize(
    ("facts", "lane", "step"),
    [
        (
            Facts(reading=True, draining=True, renewal_due=True, clock_due=True, orphans=True, scan_due=True),
            "empty",
            Step.WAIT,
        ),
        (Facts(draining=True, renewal_due=True, orphans=True, suspects=True, scan_due=True), "empty", Step.END),
        (Facts(draining=True, renewal_due=True, clock_due=True), "works, is full", Step.RENEW),
        (Facts(renewal_due=True, backlog=True, orphans=True, scan_due=True), "works, is full", Step.RENEW),
        (Facts(draining=True, clock_due=True), "works, is full", Step.MEASURE),
        (Facts(clock_due=True, backlog=True, orphans=True, scan_due=True), "works, is full", Step.MEASURE),
        (Facts(draining=True, orphans=True, suspects=True, scan_due=True), "works, has room", Step.WAIT),
        (Facts(backlog=True, orphans=True, scan_due=True), "works, has room", Step.WAIT),
        (Facts(orphans=True, suspects=True, scan_due=True), "works, is full", Step.WAIT),
        (Facts(suspect_last=True, orphans=True, suspects=True, scan_due=True), "works, has room", Step.WAIT),
        (Facts(orphans=True, suspects=True, scan_due=True), "works, has room", Step.CLAIM),
        (Facts(suspect_last=True, orphans=True), "empty", Step.CLAIM),
        (Facts(suspects=True, scan_due=True), "empty", Step.CLAIM_SUSPECT),
        (Facts(suspect_last=True, suspects=True), "empty", Step.CLAIM_SUSPECT),
        (Facts(suspects=True, scan_due=True), "works, has room", Step.WAIT),
        (Facts(legacy_due=True, scan_due=True), "works, has room", Step.MOVE),
        (Facts(legacy_due=True, scan_due=True), "works, is full", Step.WAIT),
        (Facts(scan_due=True), "works, has room", Step.SCAN),
        (Facts(suspect_last=True, scan_due=True), "empty", Step.SCAN),
        (Facts(), "works, is full", Step.WAIT),
        (Facts(), "works, has room", Step.READ),
        (Facts(suspect_last=True), "empty", Step.READ),
    ],
    ids=[
        "a read is under way",
        "draining, and the lane is empty",
        "the leases are due for renewal while draining",
        "the leases are due for renewal",
        "the clock is due while draining",
        "the clock is due",
        "draining",
        "a backlog",
        "no free slot for orphans",
        "a suspect in the lane",
        "orphans",
        "orphans after a suspect",
        "suspects, and the lane is empty",
        "suspects after a suspect",
        "suspects, and the lane is not empty",
        "streams of old clients are due",
        "no free slot for entries of old clients",
        "a scan is due",
        "a scan is due after a suspect",
        "no free slot for a read",
        "none of these",
        "none of these after a suspect",
    ],
)
def test_the_first_row_that_holds_decides(facts: Facts, lane: str, step: Step) -> None:
    assert decide(facts, lane) is step


def situations(*steps: Step) -> list[tuple[Facts, str]]:
    """All situations in which one of these steps is next."""
    return [(facts, lane) for facts, lane in product(ALL_FACTS, LANES) if decide(facts, lane) in steps]


def test_a_read_under_way_is_waited_for() -> None:
    assert all(facts.reading <= (decide(facts, lane) is Step.WAIT) for facts, lane in product(ALL_FACTS, LANES))


def test_entries_are_taken_only_into_a_lane_that_has_room_and_does_not_drain() -> None:
    for facts, lane in situations(*TAKES):
        assert LANES[lane][0], facts
        assert not facts.draining, facts
        assert not facts.backlog, facts


def test_nothing_joins_a_suspect_in_the_lane() -> None:
    assert {lane for facts, lane in situations(*TAKES) if facts.suspect_last} == {"empty"}
    assert {lane for _, lane in situations(Step.CLAIM_SUSPECT)} == {"empty"}


def test_new_entries_are_read_only_when_none_wait_to_be_claimed_and_no_scan_is_due() -> None:
    assert not any(facts.orphans or facts.suspects or facts.scan_due for facts, _ in situations(Step.READ))


def test_the_end_comes_when_the_lane_is_empty() -> None:
    assert {(facts.draining, facts.reading, lane) for facts, lane in situations(Step.END)} == {(True, False, "empty")}


@pytest.mark.parametrize(
    ("deliveries", "max_deliveries", "expected"),
    [(1, 5, False), (2, 5, True), (5, 5, True), (1, 2, False), (1, 1, True)],
)
def test_suspects(deliveries: int, max_deliveries: int, expected: bool) -> None:
    assert is_suspect(deliveries, max_deliveries) is expected


@settings(derandomize=True, max_examples=200)
@given(
    renewal_turns=st.integers(3, 20),
    found=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4),
    finishes=st.lists(st.booleans(), max_size=6),
)
def test_under_constant_load_every_scan_comes_and_suspects_run_alone(
    renewal_turns: int, found: list[tuple[int, int]], finishes: list[bool]
) -> None:
    """In a lane of three slots, every read fills a slot, and a scan finds so many orphans and suspects."""
    taken: Counter[Step] = Counter()
    lane: deque[Step] = deque()
    orphans = suspects = 0
    renewed, suspect_last, scan_due = -renewal_turns, False, False
    scans = iter(found)

    for turn, finished in zip(range(1000), cycle([*finishes, True]), strict=False):
        if lane and finished:
            lane.popleft()
        facts = Facts(
            renewal_due=turn - renewed >= renewal_turns,
            suspect_last=suspect_last,
            orphans=orphans > 0,
            suspects=suspects > 0,
            scan_due=scan_due,
        )
        step = next_step(facts, lambda: len(lane) < 3, lambda: not lane)
        taken[step] += 1
        if step in TAKES:
            lane.append(step)
            suspect_last = step is Step.CLAIM_SUSPECT
            orphans -= step is Step.CLAIM
            suspects -= step is Step.CLAIM_SUSPECT
        elif step is Step.RENEW:
            renewed, scan_due = turn, True
        elif step is Step.SCAN:
            orphans, suspects = next(scans, (0, 0))
            scan_due = False
        assert Step.CLAIM_SUSPECT not in lane or len(lane) == 1

    assert taken[Step.SCAN] > len(found)
    assert taken[Step.CLAIM] == sum(orphans for orphans, _ in found)
    assert taken[Step.CLAIM_SUSPECT] == sum(suspects for _, suspects in found)
    assert taken[Step.READ] > 0
