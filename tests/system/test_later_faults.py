"""Answers later while Redis, node and frontend are killed: a short run of `bench.later`."""

from bench import later


def test_each_accepted_call_is_answered_once_and_called_back() -> None:
    figures = later.run(requests=120, rate=30, every_s=0.5, seed=1, timeout_s=0.5)

    assert {name: figures[name] for name in later.ALL_WELL} == dict.fromkeys(later.ALL_WELL, 0)
    assert figures["accepted"] >= 120
    assert figures["kills"] >= 3
    assert figures["posts.taken"] >= 100
