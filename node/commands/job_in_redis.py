"""Find the job and its Redis, for commands that look at a job in Redis from any machine."""

import functools
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cluster_serving.client.servers.config.file_here import file_here
from cluster_serving.node.commands.which_job import chosen_job, job_names
from cluster_serving.node.lifecycle.jobs_here import not_running, was_started

if TYPE_CHECKING:
    from cluster_serving.client.threads.link import Link
    from cluster_serving.node.config.loading import Config


class Where(NamedTuple):
    """Job, config file and Redis URL from the command line. None: not given."""

    job: str | None
    config_path: str | None
    redis_url: str | None


class Reached(NamedTuple):
    """Job, the connection to its Redis, and the configuration as far as this machine knows it."""

    job: str
    link: "Link"
    config: "Config"


def where_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options for job and Redis to a command. The function takes the options as `where`."""

    @functools.wraps(function)
    def with_where(*, job: str | None, config_path: str | None, redis_url: str | None, **values: Any) -> None:
        function(where=Where(job, config_path, redis_url), **values)

    command: Callable[..., None] = with_where
    options = [
        click.option(
            "--job",
            metavar="NAME",
            shell_complete=job_names,
            help="Name of the job; default: the job of config.yaml, or the only running job.",
        ),
        click.option("-c", "--config-path", metavar="PATH", help="Config file with the address of Redis."),
        click.option("--redis-url", help="host:port or URL of Redis."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def reach(where: Where, timeout_s: float | None = None) -> Generator[Reached]:
    """Connect to the Redis of a job, for a block.

    When the command line names neither a config file nor a Redis, the connection goes to the Redis of the job's last start on
    this machine. Otherwise, and for a job that was never started here, the address comes from `--redis-url`, the environment
    and the config file (default: config.yaml, if the file exists). `timeout_s` replaces `redisTimeout`.

    Raises:
        Fault: the configuration is wrong. Inside the block: Redis cannot be reached, or refuses a command.
    """
    import redis

    from cluster_serving.client.errors import ConnectionLost
    from cluster_serving.client.servers.process.redaction import hide, secrets_of_config
    from cluster_serving.client.threads.link import Link
    from cluster_serving.node.job.directory import Job
    from cluster_serving.node.job.redis_errors import RedisUnavailable

    job, config = _configured(where)
    hide(*secrets_of_config(config))
    settings = config.redis_settings(timeout_s)
    link = Link(settings)
    try:
        yield Reached(job, link, config)
    except ConnectionLost as error:
        why = f"{str(error).rstrip('.')}; check redisUrl and redisPassword, or give --redis-url"
        if where.job is not None and where.redis_url is None and not was_started(misspelled := Job.of(where.job)):
            why = f"{why}. {not_running(misspelled)}"
        raise RedisUnavailable(why) from error
    except redis.ResponseError as error:
        raise RedisUnavailable(f"Redis at {settings.describe()} refuses: {error}") from error
    finally:
        link.close()


def _configured(where: Where) -> "tuple[str, Config]":
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.node.lifecycle.options import recorded_options

    name = where.job
    if where.config_path is None and where.redis_url is None:
        job = chosen_job(name)
        record = job.read()
        if record is not None:
            path = Path(record.config_path) if record.config_path else None
            return job.name, load_config(path, os.environ, recorded_options(record).flags()).config
        name = job.name
    config = load_config(file_here(where.config_path), os.environ, {"--redis-url": where.redis_url}).config
    return name or config.job_name, config
