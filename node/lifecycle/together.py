"""Redis, node and frontend of one job for a block of a command that stays in the foreground."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cluster_serving.client.servers.process.command import say
from cluster_serving.node.config.loading import LoadedConfig
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.background import Started, start_servers
from cluster_serving.node.lifecycle.frontend import Http
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.lifecycle.prepare import prepare
from cluster_serving.node.lifecycle.stopping import stop_redis

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def serving(
    options: StartOptions, loaded: LoadedConfig, path: Path | None, job: Job, timeout_s: float, http: Http
) -> Generator[Started]:
    """Serve a model for a block. The end of the block ends all that was started: frontend, node, and Redis.

    SIGTERM and SIGHUP end the block as Ctrl-C does, by a KeyboardInterrupt. From then on a further signal lets node and
    frontend stop at once. When this process is killed, the kernel tells both to stop.

    Args:
        options: options of `start`.
        loaded: config of the node.
        path: config file of the node.
        job: job of the node.
        timeout_s: seconds to wait until ready.
        http: wish for the frontend.

    Raises:
        Fault: the model, Redis, the node or the frontend is at fault.
    """
    started: Started | None = None

    def hurry(_number: int, _frame: object) -> None:
        if started is not None:
            started.node.terminate()
            if started.frontend is not None:
                started.frontend.terminate()

    had_redis = redis_server.owned(job.redis_directory) is not None
    before = {number: signal.signal(number, signal.default_int_handler) for number in _SIGNALS}
    try:
        prepare(loaded.config, job, say)
        started = start_servers(options, loaded, path, job, timeout_s, http, [f"--parent={os.getpid()}"])
        yield started
    finally:
        for number in _SIGNALS:
            signal.signal(number, hurry)
        if started is not None:
            started.stop()
        if not had_redis and redis_server.owned(job.redis_directory) is not None:
            stop_redis(job)
        for number, handler in before.items():
            signal.signal(number, handler)
