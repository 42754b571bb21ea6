"""The node's end of a change: what it is to become, from a `restart` that waits, or from the same options read again."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from cluster_serving.client.process.exit_codes import ExitCode, Fault
from cluster_serving.client.process.redaction import hide, secrets_of_config
from cluster_serving.node.change import Plan, refuse
from cluster_serving.node.commands.options import StartOptions
from cluster_serving.node.commands.prepare import find_model
from cluster_serving.node.commands.reporting import Reporter
from cluster_serving.node.commands.start import TIMEOUT_S, options_of
from cluster_serving.node.config import Config
from cluster_serving.node.jobs import ChangeRequest, Job

log = structlog.get_logger(__name__)


class Given(NamedTuple):
    """Where settings come from: options, variables, and the directory that relative paths of both begin at."""

    options: StartOptions
    environ: Mapping[str, str]
    directory: Path


class Changes:
    """What the node of a job may change to.

    Args:
        job: its directory.
        config: what it was started with.
        given: where that came from.
        remember: writes down how it is to be started from now on.
    """

    def __init__(
        self, job: Job, config: Config, given: Given, remember: Callable[[StartOptions, Config], None]
    ) -> None:
        self._job = job
        self._redis = config.redis_settings().describe()
        self._given = given
        self._remember = remember

    def asked(self) -> bool:
        """Whether a `restart` waits."""
        return self._job.asked()

    def next(self) -> Plan | None:
        """What to change to: of the `restart` that waits, or the same options, read again.

        Returns:
            None when that cannot be; the reason has been logged, and told to who waits.
        """
        request = self._job.take_request()
        report = Reporter(_pipe(request.report) if request else None)
        given, timeout_s = self._given, TIMEOUT_S
        if request is not None:
            given, timeout_s = _given(request), request.timeout_s
        try:
            return self._plan(given, report, timeout_s)
        except (Fault, OSError) as fault:
            code = fault.exit_code if isinstance(fault, Fault) else ExitCode.FAILED
            refuse(report, str(fault), code)
            return None

    def _plan(self, given: Given, report: Reporter, timeout_s: float) -> Plan:
        with _in(given.directory):
            config = given.options.load(given.environ)[0].config
        hide(*secrets_of_config(config))
        if Job.of(config.job_name) != self._job or config.redis_settings().describe() != self._redis:
            raise Fault("jobName or redisUrl is another one now: use restart, which stops the node first")
        config.check_model_path()
        model = find_model(config)

        def commit() -> None:
            self._given = given
            try:
                self._remember(given.options, config)
            except OSError as error:
                log.warning("the next start does not know of this change", reason=str(error))

        return Plan(config, model, report, commit, timeout_s)


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


def _given(request: ChangeRequest) -> Given:
    return Given(options_of(request.config_path, request.flags), request.environ, Path(request.directory))


def _pipe(path: str) -> int | None:
    """The pipe to who waits; None when he has gone."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
