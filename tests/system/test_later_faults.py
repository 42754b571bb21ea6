"""Answers later while Redis, node and frontend are killed: a short run of `bench.later`."""

import pytest
from bench import http_faults, later

from support.private_redis import free_port


def test_each_accepted_call_is_answered_once_and_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "REDIS_PORT"):
        port = free_port()  # the modules chose theirs when the tests were collected
        for module in (http_faults, later):
            monkeypatch.setattr(module, name, port)

    figures = later.run(requests=120, rate=30, every_s=0.5, seed=1, timeout_s=0.5)

    assert {name: figures[name] for name in later.ALL_WELL} == dict.fromkeys(later.ALL_WELL, 0)
    assert figures["accepted"] >= 120
    assert figures["kills"] >= 3
    assert figures["posts.taken"] >= 100
