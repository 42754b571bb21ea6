"""Words about jobs: the command for a job, and why a job does not run, with the jobs that there are."""

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job

_MOST = 10


def command_for(job: "Job", verb: str) -> str:
    """Return the command line that stops a job, for instance: `cluster-serving stop digits`."""
    return shlex.join(["cluster-serving", verb, *(["--"] if job.name.startswith("-") else []), job.name])


def was_started(job: "Job") -> bool:
    """Return whether a node of the job was ever started on this machine."""
    return job.lock_path.exists() or job.read() is not None


def not_running(job: "Job") -> str:
    """Return why the job does not run, and the other jobs of this machine."""
    from cluster_serving.node.job.directory import all_jobs

    others = [other for other in all_jobs() if other != job and was_started(other)]
    names = [f"{other.name} (running)" if other.running() else other.name for other in others]
    if len(names) > _MOST:
        names[_MOST:] = [f"and {len(names) - _MOST} more"]
    here = f"; jobs here: {', '.join(names)}" if names else ""
    if was_started(job):
        return f"Job {job.name} does not run on this machine{here}"
    return f"No job {job.name} was ever started on this machine{here}"
