"""Reasons for results that do not come: the questions to Redis, and the reading of the replies."""

from typing import Any

import pytest

from cluster_serving.client import keys
from cluster_serving.client.protocol.absence import Hope, Inquiry
from cluster_serving.client.protocol.redis_refused import RedisRefused

REDIS = "redis://host:1/0"
NOW = [b"1000", b"999999"]
REFUSED = RedisRefused("NOPERM")
INQUIRY = Inquiry("mine", REDIS)


def beats(**ages_s: int) -> list[bytes]:
    """The list of nodes: `job_node`, and the seconds since the last heartbeat."""
    named = {keys.node_key(*name.split("_")): age_s for name, age_s in ages_s.items()}
    return [part for name, age_s in named.items() for part in (name.encode(), b"%d" % (1000 - age_s))]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (beats(mine_a=0, mine_b=6, mine_c=7), f"live nodes of job mine on {REDIS}: 2, records under way: 5"),
        ([], f"no node of job mine lives on {REDIS}; jobs there: none"),
        (beats(z_a=0, b_a=1, b_b=2, old_a=9), f"no node of job mine lives on {REDIS}; jobs there: b, z"),
        (beats(mine_a=3600), f"no node of job mine lives on {REDIS}; jobs there: none"),
    ],
)
def test_the_reason_tells_the_nodes(nodes: list[bytes], reason: str) -> None:
    assert INQUIRY.read_reason([5, NOW, nodes]) == reason


@pytest.mark.parametrize("refused", range(3))
def test_the_reason_for_a_user_who_may_not_ask(refused: int) -> None:
    replies: list[Any] = [5, NOW, []]
    replies[refused] = REFUSED

    assert INQUIRY.read_reason(replies) == f"is a node of job mine running on {REDIS}?"


def test_many_jobs_and_odd_names() -> None:
    odd = INQUIRY.read_reason([0, NOW, [keys.node_key("\x1b[2J", "n").encode(), b"1000"]])
    many = INQUIRY.read_reason([0, NOW, beats(**{f"job{number}_n": 0 for number in range(10, 23)})])

    assert odd.endswith(r"jobs there: '\x1b[2J'")
    assert many.endswith("jobs there: " + ", ".join(f"job{number}" for number in range(10, 20)) + ", and 3 more")


@pytest.mark.parametrize(("limit", "served"), [(None, False), (b"0", True), (REFUSED, True)])
@pytest.mark.parametrize(("asked", "lost"), [([], []), ([[b"2-0"]], [b"2-0"]), ([REFUSED], [])])
def test_hope(limit: Any, served: bool, asked: list[Any], lost: list[bytes]) -> None:
    assert INQUIRY.read_hope([limit, *asked]) == Hope(served, frozenset(lost))


def test_without_entries_no_script_runs() -> None:
    assert INQUIRY.for_hope([]) == [("HGET", keys.limits_key("mine"), "maxQueueLength")]
