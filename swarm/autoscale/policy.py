"""Decision about the number of nodes. Pure: time and facts are given.

    by rate     = arrivals / (utilisation * pace)
    by backlog  = (arrivals + backlog that is too long / targetWait) / pace
    needed      = the larger one, rounded up, from min to max

The backlog is the one expected when a node that is ordered now serves. More nodes are ordered at once. Fewer nodes must have been
enough for a while, and then go step by step. Since all numbers are totals, nothing is ordered twice for the same records.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cluster_serving.swarm.autoscale.arrivals import FAST_S, Arrivals
from cluster_serving.swarm.autoscale.decision import Decision, Reason, counted, held
from cluster_serving.swarm.autoscale.pace import NodeWork, Pace
from cluster_serving.swarm.autoscale.settings import Autoscale
from cluster_serving.swarm.autoscale.window import Window

_START_S = 10.0  # from the order of a node until it serves, before a start was seen
_LONGEST_START_S = 300.0  # a longer one had no machine with room
_LEAP, _FACTOR = 4, 2  # nodes beyond the ready ones that may start together: so many, or as many as are ready
_ROUNDING = 1e-9
_NODE = "node"


class Facts(NamedTuple):
    """Facts about a job and its nodes at one time.

    Attributes:
        arrived: records that were ever enqueued.
        backlog: records in the queue, with the records in work.
        model: fingerprint of the model. Empty: no node is ready.
        ready: work of each ready node.
        replicas: number of nodes that Swarm is told to run.
    """

    arrived: int
    backlog: int
    model: str
    ready: Sequence[NodeWork]
    replicas: int


class Policy:
    """Decisions one after the other, a few seconds apart.

    Attributes:
        arrivals: rate of the arrivals.
        pace: speed of a node.
    """

    def __init__(self, settings: Autoscale) -> None:
        self.arrivals = Arrivals()
        self.pace = Pace()
        self._settings = settings
        self._window = Window(settings.scale_down_window_s, _NODE, settings.max)
        self._start_s = _START_S
        self._ordered_s: float | None = None

    def hold(self, why: str) -> Decision:
        """Leave the number of nodes alone. The facts before this time are forgotten: they say nothing about the time after it."""
        self.arrivals.forget()
        self._window.forget()
        self._ordered_s = None
        return held(why)

    def decide(self, now_s: float, time: datetime, facts: Facts) -> Decision:
        """Decide about the number of nodes.

        Args:
            now_s: time on a clock that never goes back.
            time: the same time for people, with a time zone.
            facts: facts of this time.
        """
        if not self.arrivals.observe(now_s, facts.arrived):
            return self.hold("Redis has fewer records than before, so another Redis answers, or it has lost some")
        self.pace.observe(now_s, facts.model, facts.ready)
        self._observe_start(now_s, facts)
        rate = self.arrivals.rate
        if rate is None:
            return held(f"the load is not observed for {FAST_S:g} s yet")
        needed, why = self._needed(rate, facts)
        least = self._settings.least_at(time)
        bounded = min(max(needed, least), self._settings.max)
        reason = Reason.MIN if bounded > needed else Reason.MAX if bounded < needed else Reason.LOAD
        if reason is Reason.MIN:
            why = f"min, {needed} would do: {why}"
        elif reason is Reason.MAX:
            why = f"max, {needed} are needed: {why}"
        self._window.observe(now_s, bounded)
        if bounded > facts.replicas:
            most = max(least, _FACTOR * len(facts.ready), len(facts.ready) + _LEAP)
            return self._up(min(bounded, most), reason, why, facts)
        if bounded < facts.replicas:
            return self._window.down(now_s, why, facts.replicas)
        return Decision(bounded, reason, f"{counted(bounded, _NODE)}: {why}")

    def _observe_start(self, now_s: float, facts: Facts) -> None:
        """Learn the time from the order of nodes until all nodes are ready."""
        if len(facts.ready) < facts.replicas:
            self._ordered_s = now_s if self._ordered_s is None else self._ordered_s
        elif self._ordered_s is not None:
            self._start_s = (self._start_s + min(_LONGEST_START_S, now_s - self._ordered_s)) / 2
            self._ordered_s = None

    def _needed(self, rate: float, facts: Facts) -> tuple[int, str]:
        """Return the number of nodes that the load needs, and why."""
        load = f"{_number(rate)} records/s arrive, {facts.backlog:,} wait or run"
        if not rate and not facts.backlog:
            return 0, "no records come"
        pace = self.pace.rate
        if pace is None:
            return max(1, facts.replicas), f"{load}, and the speed of a node is not known yet"
        settings = self._settings
        in_work = sum(node.in_work for node in facts.ready)
        growth = rate - pace * len(facts.ready)
        waiting = max(0.0, facts.backlog - in_work + growth * self._start_s)
        excess = max(0.0, waiting - rate * settings.target_wait_s)
        by_rate = rate / (settings.target_utilisation * pace)
        by_backlog = (rate + excess / settings.target_wait_s) / pace if excess else 0.0
        needed = max(1, math.ceil(max(by_rate, by_backlog) - _ROUNDING))
        return needed, f"{load}, a node does {_number(pace)}/s"

    def _up(self, wanted: int, reason: Reason, why: str, facts: Facts) -> Decision:
        if wanted <= facts.replicas:
            words = f"{counted(facts.replicas, _NODE)}, {len(facts.ready)} ready, and then more: {why}"
            return Decision(facts.replicas, Reason.STARTING, words)
        return Decision(wanted, reason, f"{counted(wanted, _NODE)} from {facts.replicas}: {why}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
