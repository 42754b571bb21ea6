"""Waits until a stack is as a command wanted it, shows how it goes, and tells why it does not get there."""

import signal
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import click

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm import docker
from cluster_serving.swarm.docker import DockerFailed
from cluster_serving.swarm.live import Stack, Task, read_stack, remains_of
from cluster_serving.swarm.progress import StackFollower
from cluster_serving.swarm.reasons import explained
from cluster_serving.swarm.view import View

_POLL_S = 1.0
_LOG_LINES = 8
_LOG_S = 10.0
_SHOWN_FAILURES = 2


class NotSettled(Fault):
    """The stack is not as it was asked to be."""


def wait_until_settled(name: str, before: Stack | None, timeout_s: float, *, drained: bool = False) -> None:
    """Wait until a stack is as it was asked to be just now.

    Args:
        name: of the stack.
        before: it, before it was asked.
        timeout_s: how long to wait.
        drained: whether tasks that were told to stop have to be gone too.

    Raises:
        NotSettled: Swarm has rolled it back, it fails again and again, or takes too long; why is in the message.
        KeyboardInterrupt: Ctrl-C; the Swarm goes on.
    """
    watch = StackFollower(before, drained)
    _follow(name, watch, timeout_s)
    if watch.is_done:
        return
    if watch.rolled_back:
        told = f"Swarm has rolled back {', '.join(watch.rolled_back)} of stack {name}, which is as it was:"
    elif watch.is_over:
        told = f"Stack {name} fails again and again; Swarm goes on trying:"
    else:
        told = f"Stack {name} is not as asked after {timeout_s:g} s; Swarm goes on:"
    raise NotSettled("\n".join([told, *_why(watch)]))


def _follow(name: str, watch: StackFollower, timeout_s: float) -> None:
    """Look and show, until there is nothing to wait for or no time left."""
    begun_s = time.monotonic()
    with View() as view:
        while True:
            view.problem = _look(name, watch)
            elapsed_s = time.monotonic() - begun_s
            view.show(watch.now, elapsed_s)
            if watch.is_done or watch.is_over or elapsed_s > timeout_s:
                return
            time.sleep(_POLL_S)


def wait_until_gone(stack: Stack, timeout_s: float) -> None:
    """Wait until no task and no network of a stack that was removed is left; tasks on machines that are down do not count.

    Raises:
        NotSettled: something is still there after `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    while left := remains_of(stack):
        if time.monotonic() > deadline_s:
            raise NotSettled(
                f"Of stack {stack.name}, which is removed, this is left after {timeout_s:g} s: {', '.join(left)}"
            )
        time.sleep(_POLL_S)


@contextmanager
def goes_on_without_us(what: str, name: str) -> Generator[None]:
    """Ctrl-C ends the waiting with exit code 130, and says that the Swarm goes on."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"The {what} goes on without us; see: cluster-serving swarm status --stack {name}", err=True)
        sys.exit(128 + signal.SIGINT)


def _look(name: str, watch: StackFollower) -> str:
    """One look at the stack; what was in the way of it. A manager may be away for a while."""
    try:
        watch.look(read_stack(name))
    except DockerFailed as error:
        return str(error)
    return ""


def _why(watch: StackFollower) -> list[str]:
    """For each service that is not ready, what its tasks died of, and their last words."""
    lines: list[str] = []
    for one in watch.now:
        if one.is_settled and one.service not in watch.rolled_back:
            continue
        lines.append(f"  {one.service}: {one.ready} of {one.wanted} ready; {one.sentence()}")
        for task in _telling(watch, one.service):
            lines.append(f"    on {watch.stack.machine_of(task) if watch.stack else '-'}: {explained(task)}")
            lines += [f"      | {line}" for line in docker.last_lines(task.id, _LOG_LINES, _LOG_S)]
    return lines


def _telling(watch: StackFollower, service: str) -> list[Task]:
    """The newest failure of each kind; where nothing failed, a task that starts and does not get ready."""
    kinds = {task.status.err: task for task in watch.failures.get(service, [])}
    tasks = watch.stack.tasks_of(watch.stack.services[service]) if watch.stack else []
    starting = [task for task in tasks if task.status.state == "starting"]
    return list(kinds.values())[-_SHOWN_FAILURES:] or starting[:1]
