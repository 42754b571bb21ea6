"""The frontend beside a node, of `serve` and `start --http`.

Node and frontend share no code. Here the frontend is a program: a command line, a pipe for its start, and a process.
"""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.config.spellings import snake
from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.config.loading import LoadedConfig
from cluster_serving.node.job import detached
from cluster_serving.node.job.directory import FRONTEND_DRAIN_S, FrontendRecord, Job
from cluster_serving.node.lifecycle.launch import Launch, environ_with

_COMMAND = (sys.executable, "-P", "-m", "cluster_serving.frontend", f"--report-fd={detached.PASSED_FD}")
_GRACE_S = 5.0
_POLL_S = 0.05
_TOLD_EVERY_S = 5.0


@dataclass(frozen=True)
class Http:
    """Wish for a frontend. `port`: port of HTTP, or None for the port of the frontend's own settings."""

    port: int | None = None


def launch_frontend(http: Http, loaded: LoadedConfig, path: Path | None, job: Job, extra: Sequence[str]) -> Launch:
    """Start a frontend for a node's job, on the same Redis. The last event of the frontend is its URL.

    Args:
        http: port.
        loaded: config of the node. Its flags become the frontend's environment, where unknown keys do no harm.
        path: config file of the node, which the frontend reads too.
        job: job of the node.
        extra: further arguments.
    """
    config, found = loaded.config, loaded.found.settings.values()
    settings = {setting.key: str(setting.value) for setting in found if setting.source.startswith("--")}
    settings |= {"jobName": config.job_name, "redisUrl": config.redis_url}
    given = {f"{ENVIRON_PREFIX}{snake(key)}": value for key, value in settings.items()}
    drain_s = max(FRONTEND_DRAIN_S, config.drain_timeout_s)
    command = [*_COMMAND, *([f"--config-path={path}"] if path else [])]
    command += [f"--port={http.port}"] if http.port is not None else []
    launch = Launch("frontend", [*command, *extra], job.frontend_log_path, environ_with(given), drain_s)
    record_frontend(http, launch, job)
    return launch


def record_frontend(http: Http, launch: Launch, job: Job) -> None:
    """Record the frontend beside the node of a job, for `stop` and `restart`."""
    job.record_frontend(FrontendRecord(launch.pid, launch.born_s, http.port, launch.drain_s))


def await_model(url: str, job: str, within_s: float) -> bool:
    """Wait until the frontend at `url` knows a ready node of a job, and return whether it does.

    A frontend reads heartbeats twice a second, and refuses requests to a job whose node it has only seen starting.
    """
    import urllib.request  # 0.02 s, for frontends alone
    from http.client import HTTPException

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # an own URL goes to no proxy
    give_up_s = time.monotonic() + within_s
    while time.monotonic() < give_up_s:
        with suppress(OSError, HTTPException, ValueError), opener.open(f"{url}/readyz", timeout=within_s) as reply:
            if job in json.load(reply)["models"]:
                return True
        time.sleep(_POLL_S)
    return False


def stop_frontend(job: Job) -> bool:
    """Stop the frontend that was started beside a node of this job. Return whether the frontend ran.

    Raises:
        Fault: this user may not stop the frontend.
    """
    record = job.read_frontend()
    if record is None:
        return False
    try:
        process = psutil.Process(record.pid)
        if detached.born_s(process) != record.born_s:
            return False
        process.terminate()
        timeout_s = record.drain_s + _GRACE_S
        if not _ended(process, job, timeout_s):
            say(f"the frontend of job {job.name} did not end in {timeout_s:g} s and is killed", err=True)
            process.kill()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied as error:
        raise Fault(
            f"the frontend of job {job.name} runs as process {error.pid}, which this user may not stop"
        ) from error
    say(f"Frontend of job {job.name} stopped.")
    return True


def _ended(process: psutil.Process, job: Job, timeout_s: float) -> bool:
    """Wait until a frontend has ended, and return whether it has. Print the waiting time now and then."""
    begun_s = time.monotonic()
    while (left_s := begun_s + timeout_s - time.monotonic()) > 0:
        try:
            process.wait(min(left_s, _TOLD_EVERY_S))
            return True
        except psutil.TimeoutExpired:
            waited_s = time.monotonic() - begun_s
            say(
                f"Waiting for the frontend of job {job.name} to answer open requests ({waited_s:.0f} of {timeout_s:g} s)."
            )
    return False
