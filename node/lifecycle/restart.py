"""`restart` of a node that goes on serving: a request for a change, and its progress (the picture is in `supervisor/change.py`)."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click
import psutil

from cluster_serving import __version__
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.progress_pipe import follow
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.directory import ChangeRequest, Job, NodeRecord
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.lifecycle.background import StartDisplay
from cluster_serving.node.lifecycle.frontend import Http, stop_frontend
from cluster_serving.node.lifecycle.launch import NotReady, environ_with
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.lifecycle.prepare import check_redis

_END_S = 10.0  # time for the node to see that the timeout has passed, and to report the failure


def can_change(job: Job, record: NodeRecord | None, config: Config) -> bool:
    """Return whether a running node can change to a config without a stop: same job, same Redis, same version of this package."""
    if record is None or not job.running() or record.version != __version__ or _moves(job, record, config):
        return False
    try:
        check_redis(config.redis_settings(), allow_eviction=config.allow_eviction)
    except RedisUnavailable:
        return False  # `start` may run the Redis
    return True


def frontend_to_move(job: Job, record: NodeRecord | None, config: Config) -> Http | None:
    """Stop the frontend beside a job that gets a new Redis or a new name, and return the wish for the same frontend there.

    Returns:
        None when no frontend runs, or when the frontend stays as it is.
    """
    frontend = job.read_frontend() if record is not None and _moves(job, record, config) else None
    return Http(frontend.port) if frontend is not None and stop_frontend(job) else None


def request_change(job: Job, options: StartOptions, timeout_s: float) -> str:
    """Request a change of a running node to new options, wait until the node has changed, and return its description.

    Raises:
        Fault: the request cannot reach the node.
        NotReady: the change has failed.
    """
    public, secrets = options.without_secrets()
    environ = {name: value for name, value in environ_with(secrets).items() if name.startswith(ENVIRON_PREFIX)}
    with job.requesting_change(), _pipe(job) as (path, descriptor):
        request = ChangeRequest(
            config_path=public.config_path,
            flags=public.argv(),
            environ=environ,
            directory=str(Path.cwd()),
            report=str(path),
            timeout_s=timeout_s,
        )
        job.request_change(request)
        try:
            _signal(job)
            with StartDisplay() as display:
                event = follow(descriptor, timeout_s + _END_S, display.show, job.running)
        except KeyboardInterrupt:
            click.echo("The node goes on with the change: see cluster-serving status.", err=True)
            raise
        except TimeoutError as error:
            raise NotReady(f"not ready after {timeout_s:g} s; see {job.log_path}", ExitCode.FAILED) from error
    if event is None:
        raise NotReady(f"the node ended before it had changed; see {job.log_path}", ExitCode.FAILED)
    if event.event != "ready":
        raise NotReady(event.text, event.code or ExitCode.FAILED)
    return event.text


def check_settled(job: Job) -> None:
    """Check that no change of the node is under way, and none that goes on after its `restart` was interrupted.

    Raises:
        Fault: the node is changing.
    """
    with job.requesting_change():
        if any(_has_writer(pipe) for pipe in job.directory.glob("change.*") if pipe.is_fifo()):
            raise Fault(f"a change of job {job.name} is under way; try again when it has ended")


def _moves(job: Job, record: NodeRecord, config: Config) -> bool:
    """Return whether a config gives a job a new name or a new Redis."""
    return Job.of(config.job_name) != job or record.redis != config.redis_settings().describe()


def _signal(job: Job) -> None:
    process = job.supervisor()
    try:
        if process is None:
            raise Fault(
                f"job {job.name} runs, but its process cannot be seen from here: another user's or container's?"
            )
        process.send_signal(signal.SIGHUP)
    except psutil.NoSuchProcess as error:
        raise Fault(f"job {job.name} has just ended; start it") from error
    except psutil.AccessDenied as error:
        raise Fault(f"job {job.name} runs as process {error.pid}, which this user may not change") from error


@contextmanager
def _pipe(job: Job) -> Generator[tuple[Path, int]]:
    """Make a named pipe for the node to write to, and open the pipe for reading."""
    for left in (*job.directory.glob("change.*"), *job.directory.glob(".change.*")):
        left.unlink(missing_ok=True)  # left by a killed `restart`, because only one runs at a time
    path = job.directory / f"change.{os.getpid()}"
    os.mkfifo(path, 0o600)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for the node
        try:
            yield path, descriptor
        finally:
            os.close(descriptor)
    except Exception:
        path.unlink(missing_ok=True)
        raise
    # Not after an interruption: as long as the node has the pipe open, it goes on with the change.
    path.unlink(missing_ok=True)


def _has_writer(pipe: Path) -> bool:
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(descriptor, 1) != b""
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
