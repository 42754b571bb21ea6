"""Decisions of the autoscaler about frontends, on a clock that is given."""

from pathlib import Path

import pytest

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.swarm.autoscale.decision import Reason
from cluster_serving.swarm.autoscale.frontends import FrontendPolicy, Use
from cluster_serving.swarm.autoscale.settings import Autoscale, load_autoscale


class Service:
    """Frontends that start at once; the test gives their use."""

    def __init__(self, frontends: int = 1, **settings: int) -> None:
        self.policy = FrontendPolicy(Autoscale.model_validate({"frontendsMax": 8, "scaleDownWindow": 60} | settings))
        self.frontends = frontends
        self.now_s = 0.0
        self.reasons: list[Reason] = []

    def run(self, seconds: int, cores: float, requests: int = 0, processes: int = 1) -> list[int]:
        """Look every two seconds; the numbers of frontends that were set."""
        numbers: list[int] = []
        for _ in range(0, seconds, 2):
            use = Use(self.frontends, processes * self.frontends, cores, requests)
            decision = self.policy.decide(self.now_s, use, self.frontends)
            self.now_s += 2
            self.reasons.append(decision.reason)
            if decision.wanted is not None and decision.wanted != self.frontends:
                numbers.append(decision.wanted)
                self.frontends = decision.wanted
        return numbers


def test_cores_that_last_bring_frontends() -> None:
    service = Service()

    assert service.run(10, 0.9) == []
    assert service.run(2, 0.9) == [2]
    assert service.run(60, 1.3) == []
    assert service.run(12, 1.9) == [3]


def test_a_moment_of_work_brings_none() -> None:
    service = Service()

    assert [service.run(8, 0.9) + service.run(4, 0.1) for _ in range(10)] == [[]] * 10


def test_open_requests_bring_at_most_as_many_as_there_are() -> None:
    service = Service(frontendRequests=100)

    assert service.run(30, 0.1, requests=750) == [2, 4, 8]


def test_processes_of_one_frontend_use_as_many_cores() -> None:
    assert Service().run(30, 2.7, processes=4) == []
    assert Service().run(30, 2.9, processes=4) == [2]


def test_bounds_are_kept_and_told() -> None:
    service = Service(frontendsMin=2, frontendsMax=3)

    assert service.run(12, 0.1) == [2]
    assert service.reasons.pop() is Reason.MIN
    assert service.run(40, 9.0) == [3]
    assert service.reasons.pop() is Reason.MAX


def test_frontends_go_one_by_one_after_the_window() -> None:
    service = Service(4)

    assert service.run(60, 0.1) == []
    assert service.run(60, 0.1) == [3, 2, 1]


def test_a_lower_frontends_max_is_reached_in_one_step() -> None:
    assert Service(6, frontendsMax=2).run(120, cores=9.0) == [2]


def test_doubt_begins_the_window_anew() -> None:
    service = Service(2)
    service.run(58, 0.1)

    assert service.policy.hold("Redis is away").words == "left alone: Redis is away"
    assert service.run(60, 0.1) == []
    assert service.run(4, 0.1) == [1]


def test_bounds_that_exclude_each_other_are_told(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("autoscale:\n  frontendsMin: 3\n  frontendsMax: 2\n")

    with pytest.raises(ConfigError, match="line 2: frontendsMin of autoscale is 3, but frontendsMax is 2: raise it"):
        load_autoscale(path, {}, {})
