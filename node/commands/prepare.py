"""What `start` makes sure of before a node runs: no other one does, there is a model, Redis answers."""

import os
import shlex
from collections.abc import Callable
from typing import Any

import redis
from redis import exceptions

from cluster_serving.client.connection import RedisSettings
from cluster_serving.node import redis_server
from cluster_serving.node.config import Config
from cluster_serving.node.exit_codes import ModelFault
from cluster_serving.node.jobs import AlreadyRunning, Job
from cluster_serving.node.redis_server import Listener, RedisUnavailable

_FIRST_ANSWER_S = 2.0  # a wrong address is told soon, whatever `redisTimeout` is


def prepare(config: Config, job: Job, say: Callable[[str], None]) -> None:
    """Check everything that can be checked without loading the model; start Redis when it has to run here and does not.

    Raises:
        NodeFault: what is wrong, by its kind.
    """
    config.check_model_path()
    if job.running():
        stop = f"cluster-serving-stop {shlex.quote(job.name)}"
        raise AlreadyRunning(
            f"Cluster Serving with name {job.name} already exists on this machine; stop it with {stop}"
        )
    _check_model(config)
    job.create()
    if problem := redis_server.redis_home_problem(os.environ):
        say(problem)
    settings = config.redis_settings(min(_FIRST_ANSWER_S, config.redis_timeout / 1000))
    if settings.is_local_default:
        _start_redis(settings.port, config.redis_max_memory, job, say)
    check_redis(settings)


def _check_model(config: Config) -> None:
    from cluster_serving.node.models.base import ModelError
    from cluster_serving.node.models.detect import detect

    try:
        detect(config.model_path, config.model_type)
    except ModelError as error:
        raise ModelFault(str(error)) from error


def _start_redis(port: int, max_memory_bytes: int, job: Job, say: Callable[[str], None]) -> None:
    """Start the embedded Redis when nobody listens on the port."""
    found = redis_server.listener(port)
    if found is Listener.NOBODY:
        say(f"Starting Redis on port {port}.")
        try:
            redis_server.start(job.redis_directory, port, max_memory_bytes)
        except RedisUnavailable:
            # Another job's start may have been first.
            found = redis_server.listener(port)
            if found is not Listener.REDIS:
                raise
    elif found is Listener.OTHER:
        raise RedisUnavailable(f"port {port} is in use by something that is no Redis; choose another port in redisUrl")


def check_redis(settings: RedisSettings) -> None:
    """Check that Redis answers, lets us in, and is new enough.

    Raises:
        RedisUnavailable: it does not.
    """
    where = f"Redis at {settings.describe()}"
    try:
        with settings.client() as client:
            info: Any = client.info("server")
    except exceptions.NoPermissionError:
        return  # this user may not ask for the version
    except redis.BusyLoadingError as error:
        raise RedisUnavailable(f"{where} is still loading its data; try again when it has") from error
    except (redis.AuthenticationError, exceptions.AuthorizationError) as error:
        raise RedisUnavailable(f"{where}: {str(error).rstrip('.')}; check redisUsername and redisPassword") from error
    except (redis.RedisError, OSError) as error:
        raise RedisUnavailable(f"{where} cannot be used: {error}") from error
    redis_server.check_version(info)
