"""The node's end of a change: what it is to become, from a `restart` that waits, or from the same options read again."""

import os
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.node.config.loading import Config
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.placing import begin, placed
from cluster_serving.node.fetching.under_way import UnderWay
from cluster_serving.node.job.directory import ChangeRequest, Job
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, options_of
from cluster_serving.node.lifecycle.prepare import find_model
from cluster_serving.node.lifecycle.progress_pipe import Reporter
from cluster_serving.node.supervisor.change import Plan, refuse

log = structlog.get_logger(__name__)


class Origin(NamedTuple):
    """Where settings come from: options, variables, and the directory that relative paths of both begin at."""

    options: StartOptions
    environ: Mapping[str, str]
    directory: Path


class RestartPlans:
    """What the node of a job may change to.

    Args:
        job: its directory.
        config: what it was started with.
        given: where that came from.
        remember: writes down how it is to be started from now on.
        entry: keeps its model in the cache, if it was fetched.
    """

    def __init__(
        self,
        job: Job,
        config: Config,
        given: Origin,
        remember: Callable[[StartOptions, Config], None],
        entry: Entry | None = None,
    ) -> None:
        self._job = job
        self._redis = config.redis_settings().describe()
        self._given = given
        self._remember = remember
        self._serving = entry
        self._next: Entry | None = None
        """The model of a change that has been begun; it is kept until the next one if that failed."""
        self._pending: PendingPlan | None = None

    def asked(self) -> bool:
        """Whether a `restart` waits."""
        return self._job.asked()

    def next(self) -> Plan | None:
        """What to change to: of the `restart` that waits, or the same options, read again.

        Returns:
            None when that cannot be; the reason has been logged, and told to who waits.
        """
        pending, self._pending = self._pending or self._take(), None
        try:
            if pending.config is None:
                pending.config = self._read(pending.given)
                if pending.config.model_is_remote:
                    pending.fetch = begin(pending.config, self._job)
            if pending.is_fetched():
                return self._plan(pending, pending.config)
            self._pending = pending
        except (Fault, OSError) as fault:
            code = fault.exit_code if isinstance(fault, Fault) else ExitCode.FAILED
            refuse(pending.report, str(fault), code)
        return None

    @property
    def fetching(self) -> bool:
        """Whether `next` is to be asked again, for its model is on its way."""
        return self._pending is not None

    def give_up(self, reason: str) -> None:
        """Fetch no more."""
        if self._pending is not None and self._pending.fetch is not None:
            self._pending.fetch.give_up()
            self._pending.report("failed", reason, ExitCode.FAILED)
            self._pending = None

    def _take(self) -> "PendingPlan":
        request = self._job.take_request()
        report = Reporter(_pipe(request.report) if request else None)
        if request is None:
            return PendingPlan(self._given, report, TIMEOUT_S)
        return PendingPlan(_given(request), report, request.timeout_s)

    def _read(self, given: Origin) -> Config:
        with _in(given.directory):
            config = given.options.load(given.environ)[0].config
        hide(*secrets_of_config(config))
        if Job.of(config.job_name) != self._job or config.redis_settings().describe() != self._redis:
            raise Fault("jobName or redisUrl is another one now: use restart, which stops the node first")
        config.check_model_path()
        return config

    def _plan(self, pending: "PendingPlan", config: Config) -> Plan:
        if self._next is not None:
            self._next.release()
            self._next = None
        url = ""
        if pending.fetch is not None:
            self._next = pending.fetch.result()
            url, config = config.model_path, placed(config, self._next)
        model = find_model(config, url)

        def commit() -> None:
            if self._serving is not None:
                self._serving.release()
            self._serving, self._next = self._next, None
            self._given = pending.given
            try:
                self._remember(pending.given.options, config)
            except OSError as error:
                log.warning("the next start does not know of this change", reason=str(error))

        return Plan(config, model, pending.report, commit, pending.timeout_s, pending.begun_s)


class PendingPlan:
    """A change that is wanted and not yet described: its settings are read once, its model may be on its way."""

    def __init__(self, given: Origin, report: Reporter, timeout_s: float) -> None:
        self.given = given
        self.report = report
        self.config: Config | None = None
        self.fetch: UnderWay | None = None
        self.timeout_s = timeout_s
        self.begun_s = time.monotonic()

    def is_fetched(self) -> bool:
        """Whether its model is here, or was never elsewhere; tells how far it is.

        Raises:
            Fault: it takes too long.
        """
        if self.fetch is None:
            return True
        done = self.fetch.done
        for text in self.fetch.news():
            log.info(text)
            self.report("progress", text)
        if not done and time.monotonic() > self.begun_s + self.timeout_s:
            self.fetch.give_up()
            raise Fault(f"the model is not fetched after {self.timeout_s:g} s")
        return done


@contextmanager
def _in(directory: Path) -> Generator[None]:
    """Go to a directory for a block; unlike `contextlib.chdir` from one that has been deleted, too."""
    back = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        os.chdir(directory)
        yield
    finally:
        os.fchdir(back)
        os.close(back)


def _given(request: ChangeRequest) -> Origin:
    return Origin(options_of(request.config_path, request.flags), request.environ, Path(request.directory))


def _pipe(path: str) -> int | None:
    """The pipe to who waits; None when he has gone."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
