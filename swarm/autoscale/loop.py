"""Loop of the autoscaler: look, decide, set, and tell."""

import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Enum, Gauge

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.threads.link import Link
from cluster_serving.swarm.autoscale.decision import Decision, Reason
from cluster_serving.swarm.autoscale.facts import Doubtful, read_facts
from cluster_serving.swarm.autoscale.frontends import FrontendPolicy, read_use
from cluster_serving.swarm.autoscale.policy import Policy
from cluster_serving.swarm.autoscale.scaler import Tasks
from cluster_serving.swarm.autoscale.settings import Autoscale

log = structlog.get_logger(__name__)

LOOK_S = 2.0
"""Seconds between two looks: nodes write a heartbeat as often."""
_TOLD_S = 60.0
_KEPT, _KEPT_MS = 100, 3_600_000  # decisions for the dashboard, and ms after the last one
_ANSWER_S = 15.0  # the scaler itself waits 10 s for the engine


class ScalerClient:
    """The scaler of a service, over HTTP.

    Args:
        url: address of the scaler.
        service: `nodes` or `frontends`.

    Raises:
        Doubtful: from every method. The scaler does not answer, or refuses.
    """

    def __init__(self, url: str, service: str = "nodes") -> None:
        self.url = f"{url.rstrip('/')}/{service}"

    def read(self) -> Tasks:
        """Return the number of tasks."""
        return self._asked(urllib.request.Request(self.url))  # noqa: S310 - the address of our own scaler

    def set(self, replicas: int) -> Tasks:
        """Set the number of tasks."""
        content = msgspec.json.encode({"replicas": replicas})
        return self._asked(urllib.request.Request(self.url, content, method="PUT"))  # noqa: S310

    def _asked(self, request: urllib.request.Request) -> Tasks:
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
                return msgspec.json.decode(answer.read(), type=Tasks)
        except urllib.error.HTTPError as error:
            raise Doubtful(_said(error)) from error
        except (OSError, HTTPException, msgspec.MsgspecError) as error:
            raise Doubtful(f"the scaler at {self.url} does not answer: {getattr(error, 'reason', error)}") from error


def _said(error: urllib.error.HTTPError) -> str:
    try:
        with error:
            return msgspec.json.decode(error.read(), type=dict[str, str])["error"]
    except (OSError, HTTPException, KeyError, msgspec.MsgspecError):
        return f"the scaler answers {error.code}"


class Metrics:
    """Metrics of the autoscaler."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._wanted = {
            "node": self._gauge("wanted_nodes", "Nodes that the autoscaler wants."),
            "frontend": self._gauge("wanted_frontends", "Frontends that the autoscaler wants, where it scales them."),
        }
        self._tasks = {
            "node": self._gauge("nodes", "Nodes that Swarm is told to run."),
            "frontend": self._gauge("frontends", "Frontends that Swarm is told to run."),
        }
        self._ready = {
            "node": self._gauge("ready_nodes", "Nodes that take records."),
            "frontend": self._gauge("ready_frontends", "Frontends that report their use."),
        }
        self._reason = {
            "node": self._enum("reason", "node"),
            "frontend": self._enum("frontends_reason", "frontend"),
        }
        self._rate = self._gauge("arrivals_per_second", "Records that arrive in a second.")
        self._pace = self._gauge("node_records_per_second", "Records that a node can do in a second. 0: not known yet.")

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"cluster_serving_autoscaler_{name}", meaning, ["job_name"], registry=self.registry)

    def _enum(self, name: str, noun: str) -> Enum:
        return Enum(
            f"cluster_serving_autoscaler_{name}",
            f"Reason of the last decision about {noun}s: `load`, `min` or `max` decides the number; more {noun}s are `starting`; "
            f"a `window` is waited for before a {noun} goes; one goes (`down`); or the number is `held`: the facts are in doubt.",
            states=[reason.value for reason in Reason],
            labelnames=["job_name"],
            registry=self.registry,
        )

    def tell(self, job: str, noun: str, decision: Decision) -> None:
        """Take a decision."""
        self._reason[noun].labels(job).state(decision.reason.value)
        if decision.wanted is not None:
            self._wanted[noun].labels(job).set(decision.wanted)

    def tell_tasks(self, job: str, noun: str, tasks: int, ready: int) -> None:
        """Take the present numbers of tasks."""
        self._tasks[noun].labels(job).set(tasks)
        self._ready[noun].labels(job).set(ready)

    def tell_load(self, job: str, policy: Policy) -> None:
        """Take what was learned of the load and of the nodes."""
        self._rate.labels(job).set(policy.arrivals.rate or 0)
        self._pace.labels(job).set(policy.pace.rate or 0)


class _Service:
    """Service whose number of tasks follows its load.

    Args:
        noun: word for a task.
        scaler: sets the number of tasks.
        decide: returns a decision for the time on a clock, the time for people, and the number of tasks that Swarm is told to run.
        hold: returns the decision to leave the number alone, for a reason.

    Attributes:
        told: decision that was logged last.
        told_s: time of that.
    """

    def __init__(
        self,
        noun: str,
        scaler: ScalerClient,
        decide: Callable[[float, datetime, int], Decision],
        hold: Callable[[str], Decision],
    ) -> None:
        self.noun = noun
        self.scaler = scaler
        self.decide = decide
        self.hold = hold
        self.told: Decision | None = None
        self.told_s = 0.0


class Autoscaler:
    """Autoscaler of one job.

    Args:
        job: name of the job.
        link: connection to the Redis of the job.
        url: address of the scaler.
        settings: settings of the autoscaler.
        metrics: metrics to keep up to date.
    """

    def __init__(self, job: str, link: Link, url: str, settings: Autoscale, metrics: Metrics) -> None:
        self._job = job
        self._link = link
        self._settings = settings
        self._metrics = metrics
        self._policy = Policy(settings)
        self._frontends = FrontendPolicy(settings)
        self._services = [_Service("node", ScalerClient(url, "nodes"), self._about_nodes, self._policy.hold)]
        if settings.frontends_max:
            scaler = ScalerClient(url, "frontends")
            self._services.append(_Service("frontend", scaler, self._about_frontends, self._frontends.hold))

    def look(self, now_s: float, time: datetime) -> list[Decision]:
        """Look, decide and set the number of nodes, and of frontends where they are scaled. Return the decisions.

        Args:
            now_s: time on a clock that never goes back.
            time: the same time for people, with a time zone.

        Raises:
            OldRedis: Redis is older than version 7.
        """
        return [self._look_at(service, now_s, time) for service in self._services]

    def _look_at(self, service: _Service, now_s: float, time: datetime) -> Decision:
        try:
            decision = self._decide(service, now_s, time)
        except Doubtful as doubt:
            decision = service.hold(str(doubt))
        self._metrics.tell(self._job, service.noun, decision)
        self._metrics.tell_load(self._job, self._policy)
        self._tell(service, now_s, decision)
        return decision

    def _decide(self, service: _Service, now_s: float, time: datetime) -> Decision:
        tasks = service.scaler.read()
        if tasks.updating:
            # A roll-back goes to the specification before the last change, so a change now would be the one it goes back to.
            raise Doubtful(f"the {service.noun}s are being replaced by new ones")
        decision = service.decide(now_s, time, tasks.replicas)
        if decision.wanted is not None and decision.wanted != tasks.replicas and not self._settings.dry_run:
            service.scaler.set(decision.wanted)
            self._keep(decision)
        return decision

    def _about_nodes(self, now_s: float, time: datetime, replicas: int) -> Decision:
        facts = read_facts(self._link, self._job, replicas)
        self._metrics.tell_tasks(self._job, "node", replicas, len(facts.ready))
        return self._policy.decide(now_s, time, facts)

    def _about_frontends(self, now_s: float, _time: datetime, replicas: int) -> Decision:
        use = read_use(self._link, self._job)
        self._metrics.tell_tasks(self._job, "frontend", replicas, use.frontends)
        return self._frontends.decide(now_s, use, replicas)

    def _keep(self, decision: Decision) -> None:
        """Keep a decision in Redis for the dashboard."""
        key = keys.decisions_key(self._job)
        with suppress(ConnectionLost, RedisRefused):  # the log has it too
            self._link.call("XADD", key, "MAXLEN", _KEPT, "*", "words", decision.words)
            self._link.call("PEXPIRE", key, _KEPT_MS)

    def _tell(self, service: _Service, now_s: float, decision: Decision) -> None:
        """Log a decision about another number, or a reason to leave the number alone. Other reasons for a number: once a minute."""
        last = service.told
        if last is not None and decision.wanted == last.wanted:
            if decision.wanted is None:
                is_repeated = decision.words == last.words
            else:
                is_repeated = decision.reason is last.reason or now_s - service.told_s < _TOLD_S
            if is_repeated:
                return
        service.told, service.told_s = decision, now_s
        words = f"dry run: {decision.words}" if self._settings.dry_run else decision.words
        (log.warning if decision.reason is Reason.HELD else log.info)(words, job=self._job)
