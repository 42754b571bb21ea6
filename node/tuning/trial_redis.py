"""Private Redis of a trial, so that a queue in use and the figures of the trial do not disturb each other."""

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import redis
import structlog

from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.private_redis import PrivateRedis
from cluster_serving.node.job.redis_errors import RedisUnavailable

log = structlog.get_logger(__name__)


@contextmanager
def on_trial_redis(config: Config, *, port: int = 0) -> Generator[Config]:
    """Yield the configuration with a private Redis, which lives as long as the block.

    The configured Redis stays when no redis-server can be started, or when the model's secret has to come from the configured
    Redis.

    Args:
        config: configuration of the trial.
        port: port of this machine where the private Redis listens. It then costs what one in service costs: it is reached by TCP,
            and writes its append-only file, whose way to the disk is the kernel's. 0: it has a Unix socket, and writes nothing.

    Raises:
        RedisUnavailable: the configured Redis is needed, and does not answer; or the private Redis cannot listen on the port.
    """
    if config.model_encrypted and not config.model_secret:
        yield reached(config)
        return
    with tempfile.TemporaryDirectory(prefix="cluster-serving-tune-") as directory:
        server = PrivateRedis(Path(directory), os.environ, append_only=port != 0, port=port)
        try:
            try:
                server.start()
                url = server.url
            except (RedisUnavailable, OSError) as error:
                if port:  # the load of a measurement is none for a Redis in service
                    raise
                log.info("measuring on the configured Redis", reason=str(error))
                url = ""
            if url:
                defaults = Config()
                names = [name for name in Config.model_fields if name.startswith("redis_") and name != "redis_timeout"]
                private = {name: getattr(defaults, name) for name in names} | {"redis_url": url}
                yield config.model_copy(update=private)
            else:
                yield reached(config)
        finally:
            server.end()


def reached(config: Config) -> Config:
    """Return the same configuration, when its Redis answers.

    Raises:
        RedisUnavailable: Redis does not answer.
    """
    settings = config.redis_settings()
    try:
        with settings.client() as client:
            client.ping()
    except (redis.RedisError, OSError) as error:
        raise RedisUnavailable(f"Redis at {settings.describe()} cannot be used: {error}") from error
    return config
