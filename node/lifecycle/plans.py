"""Plans for a hot swap in the node: from a waiting `restart`, or from the same options read again."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.node.config.loading import Config
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.placing import begin, placed
from cluster_serving.node.fetching.under_way import UnderWay
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, options_of
from cluster_serving.node.lifecycle.prepare import find_model
from cluster_serving.node.lifecycle.progress_pipe import Reporter
from cluster_serving.node.supervisor.change import Plan, refuse

log = structlog.get_logger(__name__)


class Origin(NamedTuple):
    """Origin of settings: options, environment variables, and the directory for the relative paths of both."""

    options: StartOptions
    environ: Mapping[str, str]
    directory: Path


class RestartPlans:
    """Source of plans for the node of a job.

    Args:
        job: directory of the job.
        config: config of the node's start.
        given: origin of the config.
        remember: records the options for the next start of the node.
        entry: cache entry of the model, if the model was fetched.
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
        """Cache entry of the model of a begun change. After a failed change, the entry is kept until the next change."""
        self._pending: PendingPlan | None = None

    def asked(self) -> bool:
        """Return whether a `restart` waits."""
        return self._job.asked()

    def next(self) -> Plan | None:
        """Return the next plan: from the waiting `restart`, or from the same options, read again.

        Returns:
            The plan. None if the model is still fetched, or if the change is refused. The reason of a refusal has been logged,
            and sent to the waiting `restart`.
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
        """True while the model of the next plan is fetched, so that `next` has to be called again."""
        return self._pending is not None

    def give_up(self, reason: str) -> None:
        """Give up the fetch for the next plan."""
        if self._pending is not None and self._pending.fetch is not None:
            self._pending.fetch.give_up()
            self._pending.report("failed", reason, ExitCode.FAILED)
            self._pending = None

    def _take(self) -> "PendingPlan":
        request = self._job.take_request()
        if request is None:
            return PendingPlan(self._given, Reporter(None), TIMEOUT_S)
        try:
            descriptor: int | None = os.open(request.report, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            descriptor = None  # the `restart` has gone
        report = Reporter(descriptor)
        given = Origin(options_of(request.config_path, request.flags), request.environ, Path(request.directory))
        return PendingPlan(given, report, request.timeout_s)

    def _read(self, given: Origin) -> Config:
        # Unlike `contextlib.chdir`, a descriptor leads back to a deleted directory too.
        back = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            os.chdir(given.directory)
            config = given.options.load(given.environ)[0].config
        finally:
            os.fchdir(back)
            os.close(back)
        hide(*secrets_of_config(config))
        if Job.of(config.job_name) != self._job or config.redis_settings().describe() != self._redis:
            raise Fault("jobName or redisUrl has changed: use restart, which stops the node first")
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
    """Requested change without a plan yet. The settings are read once, and the model may still be fetched."""

    def __init__(self, given: Origin, report: Reporter, timeout_s: float) -> None:
        self.given = given
        self.report = report
        self.config: Config | None = None
        self.fetch: UnderWay | None = None
        self.timeout_s = timeout_s
        self.begun_s = time.monotonic()

    def is_fetched(self) -> bool:
        """Return whether the model is on this machine, and report the progress of the fetch.

        Raises:
            Fault: the fetch takes too long.
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
