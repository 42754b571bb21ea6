"""Start of the node in this process: from a complete configuration to a supervisor that serves."""

import signal

import structlog

from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.kept_proofs import remove_left
from cluster_serving.node.job.directory import Job
from cluster_serving.node.job.redis_watch import RedisWatch
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import detect
from cluster_serving.node.processing.topn import parse_filter
from cluster_serving.node.supervisor.change import ChangeSource, Report
from cluster_serving.node.supervisor.child import allow_descriptors
from cluster_serving.node.supervisor.supervisor import Supervisor
from cluster_serving.node.topology.share import Share

log = structlog.get_logger(__name__)


def serve(config: Config, job: Job, report: Report, changes: ChangeSource, redis: RedisWatch | None = None) -> int:
    """Run the node of a job until SIGTERM or SIGINT.

    Args:
        config: a complete config.
        job: directory of the job on this machine. The caller holds the lock.
        report: called with the progress of the start.
        changes: source of the changes on SIGHUP.
        redis: watch of the embedded Redis, if the node uses an embedded Redis. Stopped when the node drains.

    Returns:
        The exit code of the process.
    """
    try:
        parse_filter(config.post_processing)
        model = detect(config.model_path, config.model_type, config.beside_model)
    except (ModelError, ValueError) as error:
        report("failed", str(error))
        return ExitCode.MODEL if isinstance(error, ModelError) else ExitCode.CONFIG
    allow_descriptors()
    remove_left(job.proof_directory(config.model_cache))
    if config.tuning == "start":
        from cluster_serving.node.lifecycle.tune_first import tune_first  # with pyarrow, which takes 20 MB

        tune_first(config, model, Share().budget, job, report)
    try:
        supervisor = Supervisor(config, job, model, report, changes, redis)
    except OSError as error:
        log.error("the lanes cannot be made", reason=error.strerror)
        report("failed", f"the lanes cannot be made: {error.strerror}")
        return ExitCode.FAILED
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, supervisor.on_signal)
    if changes.requested():  # a `restart` came while the model was fetched
        supervisor.on_signal(signal.SIGHUP)
    return supervisor.run()
