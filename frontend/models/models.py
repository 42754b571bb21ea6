"""Models that can be called: jobs with a live node, and the names given to jobs in servables-conf.yaml."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from operator import attrgetter
from time import perf_counter

from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost, QueueFull
from cluster_serving.client.protocol.requests import Fields
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.config.servables import Servable
from cluster_serving.frontend.config.settings import FrontendConfig
from cluster_serving.frontend.http.errors import REDIS_AWAY, SEE_LOG, NotReady, Overloaded, UnknownModel, UnknownResult
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.metrics.timers import Count, Timer, WorkerTimers
from cluster_serving.frontend.models.backend import Backend
from cluster_serving.frontend.models.calls import Calls
from cluster_serving.frontend.models.later.callbacks import Callbacks, Render
from cluster_serving.frontend.models.later.kept import CallId, Kept
from cluster_serving.frontend.models.limits import bucket_of, take_token
from cluster_serving.frontend.models.registry import Registry
from cluster_serving.frontend.models.token_bucket import TokenBucket
from cluster_serving.frontend.models.visit import Visit, receipt_of

VERSION = "1"
"""Version of every job, because a job serves one model at a time."""

_LONGEST_SHOWN = 100


class Served:
    """A model under one name and version. `link` is the connection to its Redis for commands that do not block."""

    def __init__(
        self,
        name: str,
        version: str,
        job: Job,
        backend: Backend,
        calls: Calls,
        servable: Servable | None,
        bucket: TokenBucket | None,
        timers: WorkerTimers,
    ) -> None:
        self._bucket = bucket
        self._timers = timers
        self.name = name
        self.version = version
        self.job = job
        self.servable = servable
        self.link = backend.link
        self._registry = backend.registry
        self._later = backend.later
        self._calls = calls

    @property
    def is_current(self) -> bool:
        """True until the registry has read the heartbeats of the job again."""
        return self._registry.jobs.get(self.job.name) is self.job

    @property
    def why_not_ready(self) -> str:
        """Reason why the model cannot be called now, for probes. Empty: it can. A request may wait for a Redis that is away."""
        if not self._registry.reachable:
            return REDIS_AWAY
        return "" if self.job.ready else self.job.states

    def check_ready(self) -> None:
        """Check that at least one node takes records.

        Raises:
            NotReady: no node takes records.
        """
        if not self.job.ready:
            raise NotReady(f"no node of {self.name} is ready: {self.job.states}")

    async def predict(self, records: Sequence[Fields], visit: Visit) -> list[Result]:
        """Enqueue records and return their results in order. The result of a failed record is its error.

        Raises:
            Limited: more requests per second than servables-conf.yaml lets through to this model.
            NotReady: no node takes records.
            Overloaded: the queue is full, or the results could not arrive in time.
            ConnectionLost: Redis cannot be reached, or went away.
            RedisRefused: Redis answered with an error, and a retry is of no use.
        """
        await self._admit(len(records))
        registry, name, timers = self._registry, self.job.name, self._timers
        wait_s = registry.wait_s(name)
        if wait_s > visit.timeout_s:
            timers.count(Count.PREDICTED_WAIT)
            raise Overloaded(
                f"the records that wait for {self.name} take {wait_s:.1f} s, longer than the {visit.timeout_s:g} s "
                "that this request has",
                registry.retry_after_s(name),
            )
        begun_s = perf_counter()
        try:
            results = await self._calls.run(records, visit.timeout_s, visit.traceparent)
        except QueueFull as error:
            timers.count(Count.QUEUE_FULL)
            raise Overloaded(str(error), registry.retry_after_s(name)) from error
        elapsed_s = perf_counter() - begun_s
        timers.observe(Timer.INFERENCE, elapsed_s)
        visit.receipt = receipt = receipt_of(results[0])
        timers.observe_model(self.name, self.version, elapsed_s, receipt.run_ms / 1000 if receipt else None)
        return results

    async def accept(self, records: Sequence[Fields], form: bytes, visit: Visit) -> CallId:
        """Enqueue records, and return the id under which their results are kept.

        Args:
            records: input fields of each record.
            form: form of the answer.
            visit: the request.

        Raises:
            Limited: more requests per second than servables-conf.yaml lets through to this model.
            NotReady: no node takes records, or a node is of a release that answers nothing later.
            TooManyCalls: the caller has `laterPerKey` calls.
            Overloaded: the queue is full.
            ConnectionLost: Redis cannot be reached, or went away.
            RedisRefused: Redis answered with an error, and a retry is of no use.
        """
        await self._admit(len(records))
        old = [f"{node.node} ({node})" for node in self.job.nodes if not node.answers_later]
        if old:
            raise NotReady(f"{self.name} cannot be answered later: upgrade its nodes {', '.join(old)}")
        job, owner = self.job.name, owner_of(visit.api_key)
        try:
            return await self._later.accept(self._calls, job, records, form, owner, visit)
        except QueueFull as error:
            self._timers.count(Count.QUEUE_FULL)
            raise Overloaded(str(error), self._registry.retry_after_s(job)) from error

    async def _admit(self, records: int) -> None:
        self.check_ready()
        if self._bucket is not None:
            await take_token(self._bucket, self._timers)
        self._timers.count(Count.RECORDS, records)


class Models:
    """Models that one process of a frontend can call.

    Args:
        config: settings of the frontend.
        servables: models of servables-conf.yaml.
        timers: timers of this process.
    """

    def __init__(self, config: FrontendConfig, servables: Sequence[Servable], timers: WorkerTimers) -> None:
        self._config = config
        self._timers = timers
        self._servables = {(servable.name, servable.version): servable for servable in servables}
        self._buckets = {key: bucket_of(servable, config) for key, servable in self._servables.items()}
        self._backends: dict[RedisSettings, Backend] = {}
        self._callbacks: list[Callbacks] = []
        self._found: dict[tuple[str, str | None], Served] = {}
        self._default = self._backend(config.redis_settings())
        for servable in servables:
            self._backend(servable.redis)

    @property
    def registries(self) -> list[Registry]:
        """Registry of every Redis."""
        return [backend.registry for backend in self._backends.values()]

    @property
    def link(self) -> AsyncLink:
        """Connection to the frontend's own Redis, for commands that do not block."""
        return self._default.link

    async def start(self) -> None:
        """Look for nodes once, and go on in the background."""
        for registry in self.registries:
            await registry.start()

    def call_back(self, render: Render) -> None:
        """Post results to callbacks from now on, if they can be signed."""
        if self._config.callback_secret is not None:
            self._callbacks = [Callbacks(settings, self._config, self._timers, render) for settings in self._backends]

    async def close(self) -> None:
        """Close every connection."""
        for callbacks in self._callbacks:
            await callbacks.close()
        for backend in self._backends.values():
            await backend.close()

    async def save(self, key: str, values: Mapping[str, str]) -> None:
        """Put fields into a hash of the frontend's own Redis, as `Backend.save` does."""
        await self._default.save(key, values)

    def find(self, name: str | None = None, version: str | None = None) -> Served:
        """Return a model by name and version. Without a name, return the model of the default job.

        Raises:
            UnknownModel: no model has the name and version.
            NotReady: no node of the model is alive.
        """
        begun_s = perf_counter()
        name = name or self._config.job_name
        try:
            served = self._found.get((name, version))
            if served is None or not served.is_current:
                served = self._found[name, version] = self._find(name, version)
            return served
        finally:
            self._timers.observe(Timer.FIND_MODEL, perf_counter() - begun_s)

    def _find(self, name: str, version: str | None) -> Served:
        if version is None:
            named = [servable for (known, _), servable in self._servables.items() if known == name]
            servable = named[-1] if named else None
        else:
            servable = self._servables.get((name, version))
        if servable is not None:
            return self._served(name, servable.version, self._backend(servable.redis), servable.job, servable)
        if self._versions(name) or version not in (None, VERSION):
            raise self._unknown(name, version)
        return self._served(name, VERSION, self._default, name, None)

    async def kept(self, text: str, api_key: str) -> tuple[Backend, Kept]:
        """Return a call that is answered later, and the Redis of the call.

        Raises:
            UnknownResult: no call has the id, or the call is of another API key.
            ConnectionLost: a Redis that may have the call cannot be reached, or went away.
            RedisRefused: Redis answered with an error.
        """
        away: ConnectionLost | None = None
        call = CallId.parse(text)
        for backend in self._backends.values():
            try:
                found = await backend.later.read(call) if call else None
            except ConnectionLost as error:
                away = error
                continue
            if found is not None and found.owner == owner_of(api_key):
                return backend, found
        if away is not None:
            raise away
        raise UnknownResult("no result has this id: it never had one, it was deleted, or its time is over (laterTtl)")

    async def kept_of(self, api_key: str) -> list[Kept]:
        """Return the calls of an API key that are answered later, the newest first.

        Of each Redis, the 1000 calls that are kept longest.

        Raises:
            ConnectionLost: a Redis cannot be reached, or went away.
            RedisRefused: Redis answered with an error.
        """
        found = [await backend.later.of(owner_of(api_key)) for backend in self._backends.values()]
        return sorted(chain.from_iterable(found), key=attrgetter("begun"), reverse=True)

    def end_waits(self) -> None:
        """End the waits for results: this process is to stop."""
        for backend in self._backends.values():
            backend.later.watch.end()

    def all(self) -> Iterator[Served]:
        """Yield every model with a live node."""
        for (name, version), servable in self._servables.items():
            if servable.job in self._backend(servable.redis).registry.jobs:
                yield self._find(name, version)
        named = {name for name, _ in self._servables}
        for name in self._default.registry.jobs:
            if name not in named:
                yield self._find(name, None)

    def _served(self, name: str, version: str, backend: Backend, job: str, servable: Servable | None) -> Served:
        found = backend.registry.jobs.get(job)
        if found is None:
            if not backend.registry.reachable:
                raise NotReady(f"the Redis of the job {job} cannot be reached or cannot serve; {SEE_LOG}")
            if servable is not None or backend.registry.was_seen(job) or name == self._config.job_name:
                start = f"start one, with jobName: {job}"
                raise NotReady(f"no node of the job {job} lives: {start}; models: {self._names()}")
            raise self._unknown(name, None)
        window_ms = servable.time_window if servable else self._config.time_window
        window_calls = servable.count_window if servable else self._config.count_window
        calls = backend.calls(job, window_ms / 1000, window_calls)
        bucket = self._buckets.get((name, version))
        return Served(name, version, found, backend, calls, servable, bucket, self._timers)

    def _unknown(self, name: str, version: str | None) -> UnknownModel:
        name = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
        versions = self._versions(name) or ([VERSION] if name in self._default.registry.jobs else [])
        if versions:
            return UnknownModel(
                f"model not exist. Model Name: {name}, Model Version: {version}; versions: {', '.join(versions)}"
            )
        return UnknownModel(f"model not exist. Model Name: {name}; models: {self._names()}")

    def _names(self) -> str:
        return ", ".join(sorted({served.name for served in self.all()})) or "none, for no node lives on this Redis"

    def _versions(self, name: str) -> list[str]:
        return [version for known, version in self._servables if known == name]

    def _backend(self, settings: RedisSettings) -> Backend:
        if settings not in self._backends:
            self._backends[settings] = Backend(settings, self._config, self._timers)
        return self._backends[settings]


def owner_of(api_key: str) -> str:
    """Return the digest that stands for an API key in Redis. Callers without a key have one in common."""
    return sha256(f"owner {api_key}".encode(errors="surrogateescape")).hexdigest()[:32]
