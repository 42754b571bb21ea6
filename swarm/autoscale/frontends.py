"""Decision about the number of frontends, from the reports of their processes (`frontend/metrics/use_reports.py`).

    by CPU      = cores that all frontends use / (0.7 * processes of a frontend)
    by requests = open requests / frontendRequests
    needed      = the larger one, rounded up, from frontendsMin to frontendsMax

More frontends are ordered when they have been needed for ten seconds. Fewer go as fewer nodes do.
"""

import math
from collections import deque
from contextlib import suppress
from typing import NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.threads.link import Link
from cluster_serving.swarm.autoscale.decision import Decision, Reason, counted, held
from cluster_serving.swarm.autoscale.facts import Doubtful
from cluster_serving.swarm.autoscale.settings import Autoscale
from cluster_serving.swarm.autoscale.window import Window

_BUSY = 0.7  # share of a core up to which a process answers without waiting much for itself
_FRESH_MS = 12_000  # two reports and a late one
_RISE_S = 10.0
_FACTOR = 2  # frontends for each one that reports, at most
_ROUNDING = 1e-9
_FRONTEND = "frontend"


class Use(NamedTuple):
    """Use of all frontends.

    Attributes:
        frontends: number of frontends that report.
        processes: number of their processes.
        cores: cores that all processes use together.
        requests: open requests.
    """

    frontends: int
    processes: int
    cores: float
    requests: int


def read_use(link: Link, job: str) -> Use:
    """Read the last report of every process.

    Raises:
        Doubtful: Redis cannot be reached, or no frontend reports in a form that this release reads.
    """
    try:
        now_s, _ = link.call("TIME")
        oldest_ms = 1000 * int(now_s) - _FRESH_MS
        entries = link.call("XREVRANGE", keys.frontends_key(job), "+", f"{oldest_ms}-0")
    except ConnectionLost as error:
        raise Doubtful(str(error)) from error
    except RedisRefused as error:
        raise Doubtful(f"Redis refuses: {error}") from error
    if not entries:
        raise Doubtful("no frontend reports its use")
    found: dict[tuple[bytes, bytes], tuple[float, int]] = {}
    for _, fields in entries:  # the newest first
        report = dict(zip(fields[::2], fields[1::2], strict=True))
        with suppress(KeyError, ValueError):  # of another release
            use = float(report[b"cpu"]), int(report[b"open"])
            found.setdefault((report[b"frontend"], report[b"process"]), use)
    if not found:
        raise Doubtful("the reports of the frontends cannot be read")
    cores, requests = zip(*found.values(), strict=True)
    return Use(len({frontend for frontend, _ in found}), len(found), sum(cores), sum(requests))


class FrontendPolicy:
    """Decisions one after the other, a few seconds apart."""

    def __init__(self, settings: Autoscale) -> None:
        self._settings = settings
        self._window = Window(settings.scale_down_window_s, _FRONTEND, settings.frontends_max)
        self._lately: deque[tuple[float, int]] = deque()

    def hold(self, why: str) -> Decision:
        """Leave the number of frontends alone. What was needed before says nothing about the time after this."""
        self._window.forget()
        self._lately.clear()
        return held(why)

    def decide(self, now_s: float, use: Use, replicas: int) -> Decision:
        """Decide about the number of frontends.

        Args:
            now_s: time on a clock that never goes back.
            use: use of the frontends at this time.
            replicas: number of frontends that Swarm is told to run.
        """
        settings = self._settings
        by_cpu = use.cores / (_BUSY * use.processes / use.frontends)
        by_requests = use.requests / settings.frontend_requests
        needed = max(1, math.ceil(max(by_cpu, by_requests) - _ROUNDING))
        bounded = min(max(needed, settings.frontends_min), settings.frontends_max)
        why = f"{use.cores:.2f} cores are used, {use.requests:,} requests are open"
        reason = Reason.MIN if bounded > needed else Reason.MAX if bounded < needed else Reason.LOAD
        self._window.observe(now_s, bounded)
        self._lately.append((now_s, bounded))
        while len(self._lately) > 1 and now_s - self._lately[1][0] >= _RISE_S:
            self._lately.popleft()
        if bounded < replicas:
            return self._window.down(now_s, why, replicas)
        lasting = min(number for _, number in self._lately)
        wanted = min(lasting, max(settings.frontends_min, _FACTOR * use.frontends))
        if wanted > replicas and now_s - self._lately[0][0] >= _RISE_S:
            return Decision(wanted, reason, f"{counted(wanted, _FRONTEND)} from {replicas}: {why}")
        return Decision(replicas, reason, f"{counted(replicas, _FRONTEND)}: {why}")
