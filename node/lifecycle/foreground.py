"""`start --foreground`: run the node in this process, until SIGTERM."""

import os
import signal
import sys
import time
from pathlib import Path

import structlog

from cluster_serving import __version__
from cluster_serving.client.servers.process import log
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.servers.process.progress_pipe import Event, Reporter
from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.directory import ChangeRequest, Job, NodeRecord
from cluster_serving.node.lifecycle.options import TIMEOUT_S, StartOptions
from cluster_serving.node.lifecycle.prepare import find_model, prepare
from cluster_serving.node.lifecycle.stopping import stop_redis


def run(options: StartOptions, report_fd: int | None, patience_s: float) -> int:
    """Serve until told to stop.

    Args:
        options: options of `start`.
        report_fd: pipe to a waiting `start`. None: no `start` waits.
        patience_s: seconds to wait for a Redis that does not answer.

    Returns:
        The exit code.

    Raises:
        Fault: the node could not start. The fault is also sent through the pipe.
    """
    report = Reporter(report_fd)
    try:
        return _serve(options, report, patience_s)
    except Fault as fault:
        report.send(Event("failed", str(fault), fault.exit_code))
        raise
    except OSError as error:
        if error.filename is not None:
            report("failed", f"{error.filename}: {error.strerror}")
        raise


def _serve(options: StartOptions, report: Reporter, patience_s: float) -> int:
    loaded, path = options.load()
    config = loaded.config
    job = Job.of(config.job_name)
    hide(*secrets_of_config(config))
    log.configure("supervisor", config.log_level)
    logger = structlog.get_logger(__name__)
    for key, why in loaded.ignored.items():
        logger.info("config key ignored", key=key, why=why)
    if path and options.config_path is None:
        options = StartOptions(config_path=str(path)).over(options)
    started_redis = prepare(config, job, logger.info, patience_s)

    from cluster_serving.node.fetching.placing import fetched
    from cluster_serving.node.job.redis_watch import watching
    from cluster_serving.node.lifecycle.changes import RequestedChanges
    from cluster_serving.node.lifecycle.log_rotation import LogRotation
    from cluster_serving.node.lifecycle.node import serve

    rotation = LogRotation(job.log_path, config)

    def remember(options: StartOptions, config: Config) -> None:
        rotation.follow(config)
        log.set_level(config.log_level)
        job.record(_record(options, config, job, home))

    def tell(text: str) -> None:
        logger.info(text)
        report("progress", text)

    settings = config.redis_settings()
    home = redis_server.home_of(settings.port) if settings.is_local_default else None
    try:
        with job.acquire(), rotation.running():
            remember(options, config)
            logger.info("starting", job=job.name, node=job.node_id(), redis=config.redis_settings().describe())
            _leave_on_signals(job)
            local, entry = fetched(config, job, tell)
            if entry is not None:
                find_model(local, config.model_path)
            # Kept in memory alone, so the flags may hold secrets.
            request = ChangeRequest(
                config_path=options.config_path,
                flags=options.argv(),
                environ=dict(os.environ),
                directory=str(Path.cwd()),
                report="",
                timeout_s=TIMEOUT_S,
            )
            changes = RequestedChanges(job, config, request, remember, entry)
            with watching(home, settings.port, settings.password) as watch:
                return serve(local, job, report, changes, watch)
    finally:
        if started_redis and not report.was_ready:
            stop_redis(job)


def _leave_on_signals(job: Job) -> None:
    """End on signals until the supervisor listens, because the fetch of a model may take long. A `restart` is answered later."""
    on_terminal = sys.stdout.isatty()  # asked now, because a closed terminal is no terminal any more

    def on_signal(number: int, _frame: object) -> None:
        if number == signal.SIGTERM or (on_terminal and not job.change_requested()):
            sys.exit(ExitCode.OK)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)


def _record(options: StartOptions, config: Config, job: Job, redis_home: Path | None) -> NodeRecord:
    settings = config.redis_settings()
    return NodeRecord(
        job=job.name,
        node=job.node_id(),
        pid=os.getpid(),
        config_path=options.config_path,
        flags=options.without_secrets()[0].argv(),
        redis=settings.describe(),
        local_redis_port=settings.port if settings.is_local_default else None,
        drain_timeout_s=config.drain_timeout_s,
        started_ms=time.time_ns() // 1_000_000,
        redis_directory=str(redis_home) if redis_home else None,
        version=__version__,
    )
