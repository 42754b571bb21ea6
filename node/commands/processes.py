"""Find the processes of a job, and of frontends, on this machine, for commands that look into a process."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.which_job import job_names
from cluster_serving.node.lifecycle.jobs_here import not_running

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job

SUPERVISOR, FRONTEND = "supervisor", "frontend"
ROLES = ("reader", "worker", "writer", FRONTEND, SUPERVISOR)

_CHILD = ["-m", "cluster_serving.node.supervisor.child"]
_FRONTEND = ["-m", "cluster_serving.frontend.server.process"]


class NotRunning(Fault):
    """There is no process of this kind."""

    exit_code = ExitCode.NOT_RUNNING


class FoundProcess(NamedTuple):
    """Process of a job or of a frontend. `name` is the name in its log lines."""

    role: str
    name: str
    pid: int

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid})"


def process_arguments(function: Callable[..., None]) -> Callable[..., None]:
    """Add `[JOB] [ROLE]` and `--process` to a command. The function takes the parameters `job`, `role` and `number`."""

    @functools.wraps(function)
    def with_arguments(*, job: str | None, role: str | None, **values: object) -> None:
        if role is None and job in ROLES:
            job, role = None, job
        function(job=job, role=role, **values)

    command: Callable[..., None] = with_arguments
    text = "One process of several: the number in its name, or its pid."
    options = [
        click.argument("job", required=False, shell_complete=_jobs_and_roles),
        click.argument("role", required=False, type=click.Choice(ROLES)),
        click.option("--process", "number", type=click.IntRange(0), metavar="N", help=text),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _jobs_and_roles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    roles = [role for role in ROLES if role.startswith(incomplete)]
    return job_names(context, parameter, incomplete) + roles


def find(job: "Job", role: str | None, number: int | None) -> list[FoundProcess]:
    """Return the processes that a command line selects.

    Args:
        job: owner of the processes. Without effect for the role frontend, because a frontend serves every job.
        role: None selects all processes of the job.
        number: number in the process name, or pid. None selects every process.

    Raises:
        NotRunning: the job does not run, or has no process of the role.
        Fault: the supervisor cannot be found, or no process has the number.
    """
    found = _frontends() if role == FRONTEND else _of_job(job)
    found = [each for each in found if role in (None, each.role)]
    if not found:
        of = "runs as this user on this machine" if role == FRONTEND else f"of job {job.name} runs at the moment"
        raise NotRunning(f"no {role} {of}")
    chosen = [each for each in found if number in (None, each.pid) or each.name == f"{each.role}-{number}"]
    if not chosen:
        raise Fault(f"there is no process {number}, but {', '.join(map(str, found))}")
    return chosen


def _of_job(job: "Job") -> list[FoundProcess]:
    """Return the supervisor first, then its children in the order of their start."""
    import psutil

    if not job.running():
        raise NotRunning(not_running(job))
    supervisor = job.supervisor()
    if supervisor is None:
        raise Fault(f"the supervisor of job {job.name} cannot be found; is it another user's?")
    try:
        children = supervisor.children()
    except psutil.NoSuchProcess as error:
        raise NotRunning(f"job {job.name} has just ended") from error
    found = [FoundProcess(SUPERVISOR, SUPERVISOR, supervisor.pid)]
    for child in children:
        try:
            command, name = child.cmdline(), child.name()  # each child tells the kernel its name
        except psutil.Error:  # the child has just ended
            continue
        if command[-3:-1] == _CHILD:
            role = command[-1]
            found.append(FoundProcess(role, name if name.startswith(role) else role, child.pid))
    return found


def _frontends() -> list[FoundProcess]:
    """Return this user's frontends (as root: every user's) in the order of their start, without frontends in containers."""
    import psutil

    seen: list[tuple[float, int]] = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[-2:] != _FRONTEND:
                continue
            # Equal pid namespaces: the process runs on this machine, or in this container.
            here, there = (Path(f"/proc/{pid}/ns/pid").readlink() for pid in ("self", process.pid))
            if here == there and os.geteuid() in (0, process.uids().effective):
                seen.append((process.create_time(), process.pid))
        except (psutil.Error, OSError):
            continue
    return [FoundProcess(FRONTEND, f"{FRONTEND}-{index}", pid) for index, (_, pid) in enumerate(sorted(seen))]
