"""The table of succession: each of its rows, and that every child that ends has exactly one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.supervisor.succession import Death, Succession, Successor, decide

DIED = Death("worker-0", "exit code 3", wanted=True, recycling=False, ready=True, interrupted=False, lane_served=True)
LEFT = DIED._replace(recycling=True, reason="exit code 0")
BOOTING = DIED._replace(ready=False, lane_served=False)
KILLED = "killed by SIGKILL; out of memory?"
ENDED = ("the worker-0 ended while it started: exit code 3", 1)

deaths = st.builds(
    Death,
    child=st.just("worker-0"),
    reason=st.sampled_from(["exit code 0", "exit code 3", KILLED]),
    wanted=st.booleans(),
    recycling=st.booleans(),
    ready=st.booleans(),
    interrupted=st.booleans(),
    lane_served=st.booleans(),
    failure=st.none() | st.tuples(st.text(), st.just(5)),
    verdict=st.sampled_from(["", "no run has ended"]),
)


@pytest.mark.parametrize(
    ("death", "decision"),
    [
        pytest.param(DIED._replace(wanted=False), Succession(Successor.NONE), id="dismissed"),
        pytest.param(LEFT, Succession(Successor.AT_ONCE, recycled=True), id="recycled"),
        pytest.param(
            LEFT._replace(reason=KILLED), Succession(Successor.AFTER_BACKOFF, died=KILLED), id="killed while it left"
        ),
        pytest.param(
            DIED._replace(interrupted=True), Succession(Successor.AT_ONCE, died="exit code 3"), id="interrupted"
        ),
        pytest.param(BOOTING, Succession(Successor.AFTER_BACKOFF, died="exit code 3", failure=ENDED), id="fails"),
        pytest.param(
            BOOTING._replace(failure=("no such layer", 5)),
            Succession(Successor.AFTER_BACKOFF, died="no such layer", failure=("no such layer", 5)),
            id="fails and says why",
        ),
        pytest.param(
            BOOTING._replace(lane_served=True),
            Succession(Successor.AFTER_BACKOFF, died="exit code 3"),
            id="a successor that does not get ready",
        ),
        pytest.param(DIED, Succession(Successor.AFTER_BACKOFF, died="exit code 3"), id="died"),
        pytest.param(
            DIED._replace(reason=KILLED, verdict="no run has ended"),
            Succession(Successor.AFTER_BACKOFF, died="no run has ended"),
            id="killed as hung",
        ),
    ],
)
def test_rows(death: Death, decision: Succession) -> None:
    assert decide(death) == decision


@given(deaths)
def test_every_death_has_exactly_one_row(death: Death) -> None:
    left = death.recycling and death.ready and death.reason == "exit code 0"
    never_served = not death.ready and not death.lane_served
    rows = {
        (Successor.NONE, False, False, False): not death.wanted,
        (Successor.AT_ONCE, True, False, False): death.wanted and left,
        (Successor.AT_ONCE, False, True, False): death.wanted and not left and death.interrupted,
        (Successor.AFTER_BACKOFF, False, True, True): (
            death.wanted and not left and not death.interrupted and never_served
        ),
        (Successor.AFTER_BACKOFF, False, True, False): (
            death.wanted and not left and not death.interrupted and not never_served
        ),
    }

    (row,) = [row for row, fits in rows.items() if fits]

    decision = decide(death)
    assert (decision.successor, decision.recycled, decision.died is not None, decision.failure is not None) == row
