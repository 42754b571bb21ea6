"""Changes that a waiting `restart` or a SIGHUP requests of the node (the picture is in `supervisor/change.py`)."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial

import structlog
from msgspec.structs import replace

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.progress_pipe import Reporter
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.node.config.loading import Config
from cluster_serving.node.fetching.cache import Entry
from cluster_serving.node.fetching.placing import begin, placed
from cluster_serving.node.job.directory import ChangeRequest, Job
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions, options_of
from cluster_serving.node.lifecycle.prepare import check_settings, find_model
from cluster_serving.node.supervisor.change import STOPPED, Change, refuse

log = structlog.get_logger(__name__)


class RequestedChanges:
    """Source of changes for the node of a job.

    Args:
        job: directory of the job.
        config: config of the node's start.
        request: settings of the node's start, as a request.
        remember: records the options for the next start of the node.
        entry: cache entry of the model, if the model was fetched.
    """

    def __init__(
        self,
        job: Job,
        config: Config,
        request: ChangeRequest,
        remember: Callable[[StartOptions, Config], None],
        entry: Entry | None = None,
    ) -> None:
        self._job = job
        self._redis = config.redis_settings().describe()
        self._request = request
        """Request that led to the serving model."""
        self._remember = remember
        self._serving = entry
        self._next: Entry | None = None
        """Cache entry of the model of a begun change. After a failed change, the entry is kept until the next model is here."""
        self._preparing: Generator[None, None, Change | None] | None = None

    def requested(self) -> bool:
        """Return whether a `restart` waits."""
        return self._job.change_requested()

    @property
    def fetching(self) -> bool:
        """True while the model of the next change is being fetched, so that `next` has to be called again."""
        return self._preparing is not None

    def next(self) -> Change | None:
        """Return the next change: from the waiting `restart`, or from the last request, with its settings read again.

        Returns:
            The change. None if the model is still being fetched, or if the change is refused. The reason of a refusal has been
            logged, and sent to the waiting `restart`.
        """
        self._preparing = self._preparing or self._prepare()
        try:
            next(self._preparing)
        except StopIteration as end:
            self._preparing = None
            change: Change | None = end.value
            return change
        return None

    def give_up(self) -> None:
        """Give up the fetch for the next change, because the node stops."""
        if self._preparing is not None:
            self._preparing.close()
            self._preparing = None

    def _prepare(self) -> Generator[None, None, Change | None]:
        """Read the settings of the next change, and fetch its model. Yield while the model is being fetched."""
        begun_s = time.monotonic()
        request = self._job.take_request() or replace(self._request, report="", timeout_s=TIMEOUT_S)
        descriptor: int | None = None
        with suppress(OSError):  # no `restart` waits, or the `restart` has gone
            descriptor = os.open(request.report, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        report = Reporter(descriptor)
        options = options_of(request.config_path, request.flags)
        try:
            config, entry, url = self._read(options, request), None, ""
            if config.model_is_remote:
                entry, url = (yield from self._fetch(config, report, begun_s, request.timeout_s)), config.model_path
                config = placed(config, entry)
            if self._next is not None:
                self._next.release()
            self._next = entry
            model = find_model(config, url)
        except GeneratorExit:
            report("failed", STOPPED, ExitCode.FAILED)
            raise
        except (Fault, OSError) as fault:
            refuse(report, str(fault), fault.exit_code if isinstance(fault, Fault) else ExitCode.FAILED)
            return None
        commit = partial(self._commit, request, options, config)
        return Change(config, model, report, commit, request.timeout_s, begun_s)

    def _read(self, options: StartOptions, request: ChangeRequest) -> Config:
        # Unlike `contextlib.chdir`, a descriptor leads back to a deleted directory too.
        back = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            os.chdir(request.directory)
            config = options.load(request.environ)[0].config
        finally:
            os.fchdir(back)
            os.close(back)
        hide(*secrets_of_config(config))
        if Job.of(config.job_name) != self._job or config.redis_settings().describe() != self._redis:
            raise Fault("jobName or redisUrl has changed: use restart, which stops the node first")
        check_settings(config)
        return config

    def _fetch(
        self, config: Config, report: Reporter, begun_s: float, timeout_s: float
    ) -> Generator[None, None, Entry]:
        """Fetch the model, and report the progress. Yield while the model is being fetched.

        Raises:
            Fault: the model cannot be fetched, or not within `timeout_s` from `begun_s` on.
        """
        fetch = begin(config, self._job)
        try:
            while True:
                done = fetch.done
                for text in fetch.news():
                    log.info(text)
                    report("progress", text)
                if done:
                    return fetch.result()
                if time.monotonic() > begun_s + timeout_s:
                    raise Fault(f"the model is not fetched after {timeout_s:g} s")
                yield
        except BaseException:
            fetch.give_up()
            raise

    def _commit(self, request: ChangeRequest, options: StartOptions, config: Config) -> None:
        if self._serving is not None:
            self._serving.release()
        self._serving, self._next = self._next, None
        self._request = request
        try:
            self._remember(options, config)
        except OSError as error:
            log.warning("the next start does not know of this change", reason=str(error))
