"""Delays between tries."""

import pytest

from cluster_serving.client.servers.process.backoff import Backoff


@pytest.mark.parametrize(("share", "expected"), [(1.0, [0.1, 0.2, 0.4, 0.5, 0.5]), (0.5, [0.05, 0.1, 0.2, 0.25, 0.25])])
def test_doubles_up_to_the_most_and_is_shortened_by_up_to_a_half(
    share: float, expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def uniform(low: float, high: float) -> float:
        assert (low, high) == (0.5, 1.0)
        return share

    monkeypatch.setattr("random.uniform", uniform)
    backoff = Backoff(0.1, 0.5)

    delays = [backoff.next_s() for _ in range(5)]

    assert delays == pytest.approx(expected)


def test_begins_anew_when_it_worked() -> None:
    backoff = Backoff(first_s=1, most_s=100)
    for _ in range(10):
        backoff.next_s()

    backoff.reset()

    assert 0.5 <= backoff.next_s() <= 1
    assert 1 <= backoff.next_s() <= 2


def test_no_two_nodes_return_together() -> None:
    delays = {Backoff().next_s() for _ in range(20)}

    assert len(delays) > 1
