"""Checks of `start` before a node runs: no second node of the job, a model, and a Redis that answers."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from redis import exceptions

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.config.values import mask_address
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.node.config.loading import Config
from cluster_serving.node.fetching.installed import check_can_fetch
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.directory import AlreadyRunning, Job, all_jobs
from cluster_serving.node.job.redis_errors import RedisAway, RedisUnavailable
from cluster_serving.node.job.redis_kind import check_kind
from cluster_serving.node.job.redis_program import check_version, find_server, redis_home_problem
from cluster_serving.node.job.redis_server import Listener
from cluster_serving.node.job.redis_watch import forget
from cluster_serving.node.lifecycle.jobs_here import command_for
from cluster_serving.node.lifecycle.stopping import other_users, stop_redis
from cluster_serving.node.supervisor.tensorboard import check_tensorboard
from cluster_serving.node.writer.span_export import check_spans

if TYPE_CHECKING:
    from cluster_serving.node.models.detect import Detected

_FIRST_ANSWER_S = 5.0  # reports a wrong address soon, even with a long `redisTimeout`


def check(config: Config) -> None:
    """Check everything that a start needs, and change nothing.

    Raises:
        Fault: a check has failed. The class tells the kind of the fault.
    """
    check_settings(config)
    _look_for_model(config)
    settings = _settings(config)
    if settings.is_local_default and _found(settings.port) is Listener.NOBODY:
        job = Job.of(config.job_name)
        _check_redis_can_move(job)
        find_server(os.environ, job.redis_directory)
    else:
        check_redis(settings, allow_eviction=config.allow_eviction)


def prepare(config: Config, job: Job, say: Callable[[str], None], patience_s: float = 0.0) -> bool:
    """Check everything that can be checked without loading the model, and start a missing Redis on this machine.

    Args:
        config: config of the node.
        job: job of the node.
        say: called with a line for each step.
        patience_s: seconds to wait for a Redis that does not answer.

    Returns:
        Whether a Redis was started. A caller that fails later stops the started Redis.

    Raises:
        Fault: a check has failed. The class tells the kind of the fault.
    """
    check_settings(config)
    check_free(job)
    _look_for_model(config)
    job.create()
    if problem := redis_home_problem(os.environ):
        say(problem)
    settings = _settings(config)
    started = settings.is_local_default and _start_redis(settings, config.redis_max_memory, job, say)
    try:
        _await_redis(settings, say, patience_s, config.allow_eviction)
    except RedisUnavailable:
        if started:
            redis_server.stop(job.redis_directory)
        raise
    return started


def check_settings(config: Config) -> None:
    """Check the settings that need something of this machine, but the model itself and Redis.

    Raises:
        Fault: a setting cannot be met.
    """
    config.check_model_path()
    check_extras(config, os.environ)


def check_extras(config: Config, environ: Mapping[str, str]) -> None:
    """Check the settings of parts that are extras: TensorBoard and OpenTelemetry.

    Raises:
        Fault: the extra is missing, or cannot do its work on this machine.
    """
    check_tensorboard(config.tensorboard_dir)
    if config.open_telemetry:
        check_spans(environ)


def check_free(job: Job) -> None:
    """Check that no node of this job runs on this machine.

    Raises:
        AlreadyRunning: a node of this job runs.
    """
    if job.running():
        stop = command_for(job, "stop")
        raise AlreadyRunning(
            f"Cluster Serving with name {job.name} already exists on this machine; stop it with {stop}"
        )


def _settings(config: Config) -> RedisSettings:
    return config.redis_settings(min(_FIRST_ANSWER_S, config.redis_timeout / 1000))


def _look_for_model(config: Config) -> None:
    """Find a local model, or check that a remote model can be fetched.

    Raises:
        ModelFault: there is no model that can be served, or the package for fetching is missing.
    """
    if config.model_is_remote:
        check_can_fetch(config.model_path)
    else:
        find_model(config)


def find_model(config: Config, url: str = "") -> "Detected":
    """Return the model at `modelPath`. `url`: address that the model was fetched from, for the message.

    Raises:
        ModelFault: there is no model that can be served.
    """
    from cluster_serving.node.models.base import ModelError
    from cluster_serving.node.models.detect import detect

    try:
        return detect(config.model_path, config.model_type, config.beside_model)
    except ModelError as error:
        raise ModelFault(f"the content of {mask_address(url)}: {error}" if url else str(error)) from error


def _start_redis(settings: RedisSettings, max_memory_bytes: int, job: Job, say: Callable[[str], None]) -> bool:
    """Start the embedded Redis if no program listens on the port. Return whether the Redis was started for this job."""
    port, directory = settings.port, job.redis_directory
    with redis_server.only_one(port):
        if _found(port) is Listener.NOBODY:
            if _restarted_for_others(settings, say):
                return False
            _check_redis_can_move(job)
            if redis_server.owned(directory) is not None:
                stop_redis(job)
            server = find_server(os.environ, directory)
            say(f"Starting Redis on port {port}: {server.described()}.")
            redis_server.start(directory, port, max_memory_bytes, server, settings.password)
            forget(directory)
            return True
    ours = redis_server.owned(directory) is not None and redis_server.port_of(directory) == port
    if not ours and redis_server.holds_data(directory):
        say(f"Another Redis listens on port {port}: the records kept in {directory} are not visible to this start.")
    return False


def _check_redis_can_move(job: Job) -> None:
    """Check that no other job uses the job's embedded Redis, which runs on the port of an earlier `redisUrl`.

    Raises:
        RedisUnavailable: another job uses the Redis.
    """
    directory = job.redis_directory
    if redis_server.owned(directory) is not None and (users := other_users(job)):
        port = redis_server.port_of(directory)
        raise RedisUnavailable(
            f"the Redis with the records of job {job.name} runs on port {port}, and job {', '.join(users)} uses it: stop that "
            f"first, or keep --redis-url=localhost:{port}"
        )


def repair_redis(settings: RedisSettings, say: Callable[[str], None]) -> bool:
    """Start the embedded Redis of running nodes again, if the Redis has ended and the nodes could not start it.

    Returns:
        Whether the Redis was started.

    Raises:
        RedisUnavailable: the Redis cannot be started.
    """
    if not settings.is_local_default:
        return False
    with redis_server.only_one(settings.port):
        return _found(settings.port) is Listener.NOBODY and _restarted_for_others(settings, say)


def _restarted_for_others(settings: RedisSettings, say: Callable[[str], None]) -> bool:
    """Start the Redis again that running nodes of this machine expect on a port. Return whether there are such nodes."""
    for job in all_jobs():
        record = job.read()
        if record and record.redis_directory and record.local_redis_port == settings.port and job.running():
            say(
                f"The Redis on port {settings.port}, which job {job.name} uses, has ended: starting it again, with its data."
            )
            redis_server.restart(Path(record.redis_directory), settings.password)
            return True
    return False


def _found(port: int) -> Listener:
    """Return the kind of program that listens on a port of this machine.

    Raises:
        RedisUnavailable: the program is no Redis, or does not answer.
    """
    found = redis_server.listener(port)
    if found is Listener.SILENT:
        raise RedisUnavailable(
            f"port {port} is in use by something that is no Redis, or by a Redis that a long command keeps from answering: "
            "try again, or choose another port in redisUrl"
        )
    if found is Listener.OTHER:
        raise RedisUnavailable(f"port {port} is in use by something that is no Redis; choose another port in redisUrl")
    return found


def _await_redis(settings: RedisSettings, say: Callable[[str], None], patience_s: float, allow_eviction: bool) -> None:
    give_up_s, backoff = time.monotonic() + patience_s, Backoff()
    while True:
        try:
            check_redis(settings, allow_eviction=allow_eviction)
            return
        except RedisAway as away:
            if time.monotonic() >= give_up_s:
                raise
            if not backoff.failing:
                say(f"{away}; trying again for {patience_s:g} s")
            time.sleep(backoff.next_s())


def check_redis(settings: RedisSettings, *, allow_eviction: bool = False) -> None:
    """Check that Redis answers, accepts the login, is new enough, is no cluster, and keeps accepted records.

    Args:
        settings: address of Redis.
        allow_eviction: accept a Redis that throws records away when its memory is full.

    Raises:
        RedisAway: Redis does not answer.
        RedisUnavailable: Redis cannot be used.
    """
    where = f"Redis at {settings.describe()}"
    try:
        with settings.client() as client:
            info: Any = {**client.info("server"), **client.info("cluster"), **client.info("memory")}
    except exceptions.NoPermissionError:
        return  # this user may not ask
    except redis.BusyLoadingError as error:
        raise RedisAway(f"{where} is still loading its data; try again when it has") from error
    except (redis.AuthenticationError, exceptions.AuthorizationError) as error:
        raise RedisUnavailable(f"{where}: {str(error).rstrip('.')}; check redisUsername and redisPassword") from error
    except (redis.RedisError, OSError) as error:
        raise RedisAway(f"{where} cannot be used: {error}") from error
    check_version(info)
    check_kind(info, where, allow_eviction=allow_eviction)
