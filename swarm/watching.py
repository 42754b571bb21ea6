"""Waiting for a stack after a command, with a display of its progress and an explanation of failures."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import click

from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, Fault
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.swarm import docker
from cluster_serving.swarm.docker import DockerFailed
from cluster_serving.swarm.live import Stack, read_stack, remains_of
from cluster_serving.swarm.progress import StackFollower
from cluster_serving.swarm.reasons import explained
from cluster_serving.swarm.view import View

_POLL_S = 1.0
_LOG_LINES = 8
_LOG_S = 10.0
_SHOWN_FAILURES = 2


class NotSettled(Fault):
    """The stack is not in its wanted state."""


def wait_until_settled(name: str, before: Stack | None, timeout_s: float, *, drained: bool = False) -> None:
    """Wait until a stack is in the state that a command asked for.

    Args:
        name: name of the stack.
        before: the stack before the command.
        timeout_s: longest wait in seconds.
        drained: wait also until the tasks that were told to stop are gone.

    Raises:
        NotSettled: Swarm has rolled the stack back, or the stack fails again and again or takes too long. The message says why.
        KeyboardInterrupt: the user pressed Ctrl-C. The Swarm goes on.
    """
    watch = StackFollower(before, drained)
    begun_s = time.monotonic()
    with View() as view:
        while True:
            try:
                watch.look(read_stack(name))
                view.problem = ""
            except DockerFailed as error:  # a manager may be away for a while
                view.problem = str(error)
            elapsed_s = time.monotonic() - begun_s
            view.show(watch.now, elapsed_s)
            if watch.is_done or watch.is_over or elapsed_s > timeout_s:
                break
            time.sleep(_POLL_S)
    if watch.is_done:
        return
    if watch.rolled_back:
        told = f"Swarm has rolled back {', '.join(watch.rolled_back)} of stack {name}, which is as it was:"
    elif watch.is_over:
        told = f"Stack {name} fails again and again; Swarm goes on trying:"
    else:
        told = f"Stack {name} is not as asked after {timeout_s:g} s; Swarm goes on:"
    raise NotSettled("\n".join([told, *_why(watch)]))


def wait_until_gone(stack: Stack, timeout_s: float) -> None:
    """Wait until no task and no network of a removed stack is left. Tasks on machines that are down do not count.

    Raises:
        NotSettled: a task or a network is left after `timeout_s`.
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
    """End the wait on Ctrl-C with exit code 130, and say that the Swarm goes on."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"The {what} goes on without us; see: cluster-serving swarm status --stack {name}", err=True)
        sys.exit(INTERRUPTED)


def _why(watch: StackFollower) -> list[str]:
    """Return lines about each service that is not ready: its tasks' failures, and the last lines of their logs."""
    lines: list[str] = []
    for one in watch.now:
        if one.is_settled and one.service not in watch.rolled_back:
            continue
        lines.append(f"  {one.service}: {one.ready} of {one.wanted} ready; {one.sentence()}")
        # The newest failure of each kind is shown, or a task that is still starting when no task failed.
        failures = {task.status.err: task for task in watch.failures.get(one.service, [])}
        tasks = watch.stack.tasks_of(watch.stack.services[one.service]) if watch.stack else []
        starting = [task for task in tasks if task.status.state == "starting"]
        for task in list(failures.values())[-_SHOWN_FAILURES:] or starting[:1]:
            lines.append(f"    on {watch.stack.machine_of(task) if watch.stack else '-'}: {printable(explained(task))}")
            lines += [f"      | {printable(line)}" for line in docker.last_lines(task.id, _LOG_LINES, _LOG_S)]
    return lines
