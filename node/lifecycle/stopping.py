"""Stop of a node, and of the Redis that was started for the node."""

import time
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.lifecycle.jobs_here import command_for, not_running

if TYPE_CHECKING:
    import psutil

    from cluster_serving.node.job.directory import Job

_GRACE_S = 5.0
_DRAIN_S = 4.0
_POLL_S = 0.05
_TOLD_EVERY_S = 5.0

NOTHING_TO_STOP = "Serving is not running, stop operation ignored."


class RedisEnd(Enum):
    """State of the embedded Redis that a stopped job used."""

    STOPPED = "stopped"
    RUNS_ON = "runs on"
    NONE = "none"


def stop_job(job: "Job") -> bool:
    """Stop the supervisor of a job.

    Returns:
        Whether the supervisor ran.

    Raises:
        Fault: this user cannot stop the running supervisor, or the supervisor does not end.
    """
    import psutil

    if not job.running():
        say(f"{NOTHING_TO_STOP} {not_running(job)}.")
        return False
    process = job.supervisor()
    record = job.read()
    try:
        if process is None:
            raise Fault(
                f"job {job.name} runs, but its process cannot be seen from here: another user's or container's?"
            )
        process.terminate()
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied as error:
        raise Fault(f"job {job.name} runs as process {error.pid}, which this user may not stop") from error
    say("Stop signal sent to serving.")
    timeout_s = (record.drain_timeout_s if record else _DRAIN_S) + _GRACE_S
    if not _wait(job, process, timeout_s):
        say(f"job {job.name} did not end in {timeout_s:g} s and is killed; its records go to the next node", err=True)
        process.kill()
        if not _wait(job, process, _GRACE_S):
            raise Fault(f"job {job.name} (process {process.pid}) does not end")
    say(f"Cluster Serving job {job.name} stopped.")
    return True


def _wait(job: "Job", process: "psutil.Process", timeout_s: float) -> bool:
    """Wait until the lock is free and the process has gone. Print the waiting time now and then."""
    import psutil

    started = told = time.monotonic()
    with suppress(psutil.NoSuchProcess):  # the process has gone between two looks
        while job.running() or (process.is_running() and process.status() != psutil.STATUS_ZOMBIE):
            now = time.monotonic()
            if now - started > timeout_s:
                return False
            if now - told > _TOLD_EVERY_S:
                told = now
                say(f"Waiting for job {job.name} to finish its records ({now - started:.0f} of {timeout_s:g} s).")
            time.sleep(_POLL_S)
    return True


def other_users(job: "Job") -> list[str]:
    """Return the names of the other running jobs that use the embedded Redis of this job."""
    from cluster_serving.node.job import redis_server
    from cluster_serving.node.job.directory import all_jobs

    port = redis_server.port_of(job.redis_directory)
    users: list[str] = []
    for other in all_jobs():
        record = other.read()
        if other != job and other.running() and record is not None and record.local_redis_port == port:
            users.append(other.name)
    return users


def stop_redis(job: "Job") -> RedisEnd:
    """Stop the Redis of this job, unless a different running job uses the Redis. Print why a Redis runs on.

    Raises:
        Fault: the Redis does not end.
    """
    from cluster_serving.node.job import redis_server
    from cluster_serving.node.job.directory import all_jobs

    others = [other for other in all_jobs() if other != job]
    if redis_server.owned(job.redis_directory) is None:
        record = job.read()
        owners = [
            other
            for other in others
            if redis_server.owned(other.redis_directory) is not None
            and (record is None or redis_server.port_of(other.redis_directory) == record.local_redis_port)
        ]
        for owner in owners:
            say(f"Redis was started by job {owner.name}: stop it with {command_for(owner, 'shutdown')}")
        return RedisEnd.RUNS_ON if owners else RedisEnd.NONE
    if users := other_users(job):
        say(f"Redis stays: job {', '.join(users)} uses it.")
        return RedisEnd.RUNS_ON
    redis_server.stop(job.redis_directory)
    say("Redis stopped; its data stays on disk.")
    return RedisEnd.STOPPED
