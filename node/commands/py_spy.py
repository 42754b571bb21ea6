"""Look into a process with py-spy, and tell the user how to get the permission when it is missing."""

import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.processes import FoundProcess
from cluster_serving.node.job.directory import state_home
from cluster_serving.node.supervisor.stacks import py_spy, reason

_DENIED = re.compile(r"permission denied|not permitted|os error 1\b|os error 13\b", re.IGNORECASE)
_IDLE = "No stack counts found"
_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_MARKS_OF_CONTAINERS = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")


class Ended(Fault):
    """The process is no longer there."""


class Missing(Fault):
    """py-spy is not installed."""

    exit_code = ExitCode.USAGE


def spy(target: FoundProcess, command: str, *options: str) -> str:
    """Run a py-spy command on a process. Ctrl-C ends the command early, and py-spy writes its findings so far.

    Returns:
        The standard output of py-spy. Empty: nothing was recorded, because the process waited all the time.

    Raises:
        Missing: py-spy is not installed.
        Ended: the process has ended.
        Fault: py-spy could not look into the process. The message says how to mend the cause.
    """
    program = py_spy()
    if program is None:
        raise Missing("there is no py-spy beside Python or on PATH: pip install py-spy")
    words = [program, command, "--pid", str(target.pid), *options]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        printed, said = process.communicate()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate()
    if process.returncode == 0 or _IDLE in said:
        return printed
    try:
        has_ended = psutil.Process(target.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        has_ended = True
    if has_ended:
        raise Ended(f"{target} has ended meanwhile")
    if _DENIED.search(said):
        owner, scope = "", 0
        with suppress(psutil.Error):
            seen = psutil.Process(target.pid)
            owner = seen.username() if seen.uids().real != os.geteuid() else ""
        with suppress(OSError, ValueError):
            scope = int(_SCOPE.read_text(encoding="ascii"))
        contained = any(Path(mark).exists() for mark in _MARKS_OF_CONTAINERS)
        call = [f"CLUSTER_SERVING_HOME={state_home(os.environ)}", *sys.argv]
        mend = how_to_mend(owner, os.geteuid() == 0, scope, contained, call)
        raise Fault(f"no permission to look into {target}: {mend}")
    raise Fault(f"py-spy cannot look into {target}: {reason(said)}")


def how_to_mend(owner: str, is_root: bool, scope: int, contained: bool, command: list[str]) -> str:
    """Return advice for a user without permission to trace a process.

    Args:
        owner: user who owns the process. Empty: the same user.
        is_root: True when the user is root.
        scope: value of `kernel.yama.ptrace_scope`.
        contained: True inside a container.
        command: command line of this call, with the environment variables that the command needs in front.
    """
    if owner and not is_root:
        return f"it belongs to {owner}; run this as {owner}, or as root: sudo env {shlex.join(command)}"
    if scope == 3:
        return "kernel.yama.ptrace_scope is 3, and forbids tracing until the machine boots with a lower value"
    if contained:
        # Root in a container lacks the capability to trace, and a kernel setting applies to the whole machine.
        return (
            "start the container with the capability SYS_PTRACE (docker: --cap-add SYS_PTRACE; compose and stacks: "
            "cap_add: [SYS_PTRACE]; Kubernetes: securityContext.capabilities.add), or run py-spy on the machine itself"
        )
    if is_root:
        return "a security module or seccomp forbids ptrace, even for root"
    why = f"kernel.yama.ptrace_scope is {scope}; " if scope else ""
    allow = "; or allow it until the next boot: sudo sysctl kernel.yama.ptrace_scope=0" if scope else ""
    return f"{why}run it as root: sudo env {shlex.join(command)}{allow}"
