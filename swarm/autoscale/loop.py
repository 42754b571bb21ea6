"""Loop of the autoscaler: look, decide, set, and tell."""

import urllib.error
import urllib.request
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Enum, Gauge

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.threads.link import Link
from cluster_serving.swarm.autoscale.facts import Doubtful, read_facts
from cluster_serving.swarm.autoscale.policy import Decision, Policy, Reason
from cluster_serving.swarm.autoscale.scaler import Nodes
from cluster_serving.swarm.autoscale.settings import Autoscale

log = structlog.get_logger(__name__)

LOOK_S = 2.0
"""Seconds between two looks: nodes write a heartbeat as often."""
_TOLD_S = 60.0
_KEPT, _KEPT_MS = 100, 3_600_000  # decisions for the dashboard, and ms after the last one
_ANSWER_S = 15.0  # the scaler itself waits 10 s for the engine


class ScalerClient:
    """The scaler, over HTTP.

    Raises:
        Doubtful: from every method. The scaler does not answer, or refuses.
    """

    def __init__(self, url: str) -> None:
        self.url = f"{url.rstrip('/')}/nodes"

    def read(self) -> Nodes:
        """Return the number of nodes."""
        return self._asked(urllib.request.Request(self.url))  # noqa: S310 - the address of our own scaler

    def set(self, replicas: int) -> Nodes:
        """Set the number of nodes."""
        content = msgspec.json.encode({"replicas": replicas})
        return self._asked(urllib.request.Request(self.url, content, method="PUT"))  # noqa: S310

    def _asked(self, request: urllib.request.Request) -> Nodes:
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                return msgspec.json.decode(answer.read(), type=Nodes)
        except urllib.error.HTTPError as error:
            raise Doubtful(_said(error)) from error
        except (OSError, msgspec.MsgspecError) as error:
            raise Doubtful(f"the scaler at {self.url} does not answer: {getattr(error, 'reason', error)}") from error


def _said(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            return msgspec.json.decode(error.read(), type=dict[str, str])["error"]
    except (OSError, KeyError, msgspec.MsgspecError):
        return f"the scaler answers {error.code}"


class Metrics:
    """Metrics of the autoscaler."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._wanted = self._gauge("wanted_nodes", "Nodes that the autoscaler wants.")
        self._nodes = self._gauge("nodes", "Nodes that Swarm is told to run.")
        self._ready = self._gauge("ready_nodes", "Nodes that take records.")
        self._rate = self._gauge("arrivals_per_second", "Records that arrive in a second.")
        self._pace = self._gauge("node_records_per_second", "Records that a node can do in a second. 0: not known yet.")
        self._reason = Enum(
            "cluster_serving_autoscaler_reason",
            "Reason of the last decision: `load`, `min` or `max` decides the number; more nodes are `starting`; a `window` is "
            "waited for before a node goes; one goes (`down`); or the number is `held`, because the facts are in doubt.",
            states=[reason.value for reason in Reason],
            labelnames=["job_name"],
            registry=self.registry,
        )

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"cluster_serving_autoscaler_{name}", meaning, ["job_name"], registry=self.registry)

    def tell(self, job: str, decision: Decision, policy: Policy) -> None:
        """Take a decision."""
        self._reason.labels(job).state(decision.reason.value)
        self._rate.labels(job).set(policy.arrivals.rate or 0)
        self._pace.labels(job).set(policy.pace.rate or 0)
        if decision.wanted is not None:
            self._wanted.labels(job).set(decision.wanted)

    def tell_nodes(self, job: str, nodes: int, ready: int) -> None:
        """Take the present numbers of nodes."""
        self._nodes.labels(job).set(nodes)
        self._ready.labels(job).set(ready)


class Autoscaler:
    """Autoscaler of one job.

    Args:
        job: name of the job.
        link: connection to the Redis of the job.
        scaler: sets the number of nodes.
        settings: settings of the autoscaler.
        metrics: metrics to keep up to date.
    """

    def __init__(self, job: str, link: Link, scaler: ScalerClient, settings: Autoscale, metrics: Metrics) -> None:
        self._job = job
        self._link = link
        self._scaler = scaler
        self._settings = settings
        self._metrics = metrics
        self._policy = Policy(settings)
        self._told: Decision | None = None
        self._told_s = 0.0

    def look(self, now_s: float, time: datetime) -> Decision:
        """Look, decide and set the number of nodes.

        Args:
            now_s: time on a clock that never goes back.
            time: the same time for people, with a time zone.

        Raises:
            OldRedis: Redis is older than version 7.
        """
        try:
            decision = self._decide(now_s, time)
        except Doubtful as doubt:
            decision = self._policy.hold(str(doubt))
        self._metrics.tell(self._job, decision, self._policy)
        self._tell(now_s, decision)
        return decision

    def _decide(self, now_s: float, time: datetime) -> Decision:
        nodes = self._scaler.read()
        if nodes.updating:
            # A roll-back goes to the specification before the last change, so a change now would be the one it goes back to.
            raise Doubtful("the nodes are being replaced by new ones")
        facts = read_facts(self._link, self._job, nodes.replicas)
        self._metrics.tell_nodes(self._job, nodes.replicas, len(facts.ready))
        decision = self._policy.decide(now_s, time, facts)
        if decision.wanted is not None and decision.wanted != nodes.replicas and not self._settings.dry_run:
            self._scaler.set(decision.wanted)
            self._keep(decision)
        return decision

    def _keep(self, decision: Decision) -> None:
        """Keep a decision in Redis for the dashboard."""
        key = keys.decisions_key(self._job)
        with suppress(ConnectionLost, RedisRefused):  # the log has it too
            self._link.call("XADD", key, "MAXLEN", _KEPT, "*", "words", decision.words)
            self._link.call("PEXPIRE", key, _KEPT_MS)

    def _tell(self, now_s: float, decision: Decision) -> None:
        """Log a decision about another number, or a reason to leave the number alone. Other reasons for a number: once a minute."""
        last = self._told
        if last is not None and decision.wanted == last.wanted:
            if decision.wanted is None:
                is_repeated = decision.words == last.words
            else:
                is_repeated = decision.reason is last.reason or now_s - self._told_s < _TOLD_S
            if is_repeated:
                return
        self._told, self._told_s = decision, now_s
        words = f"dry run: {decision.words}" if self._settings.dry_run else decision.words
        (log.warning if decision.reason is Reason.HELD else log.info)(words, job=self._job)
