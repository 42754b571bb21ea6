"""Calls of the `docker` command, with explanations of its errors."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault

_ANSWER_S = 60.0
_NOT_A_MANAGER = "not a swarm manager"
_FORBIDDEN = "forbidden properties"
_UNKNOWN = ("is not a docker command", "unknown command", "unknown shorthand flag", "unknown flag")


class DockerMissing(Fault):
    """No `docker` command is on PATH."""

    exit_code = ExitCode.USAGE


class DockerFailed(Fault):
    """A docker command ended with an error. The message is Docker's own, with a remedy for known errors."""


def run(
    arguments: Sequence[str],
    stdin: str | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = _ANSWER_S,
    *,
    partly: bool = False,
) -> str:
    """Run a docker command, and return its standard output.

    Args:
        arguments: the command's arguments, without the word `docker`.
        stdin: text for standard input.
        environ: variables added to the environment of this process.
        timeout_s: longest run time in seconds.
        partly: accept the output of a command that failed, because some of the named objects may be gone.

    Raises:
        DockerMissing: no docker command is on PATH.
        DockerFailed: the command ended with an error, or did not end in time.
    """
    try:
        done = subprocess.run(
            [_program(), *arguments],
            input=stdin,
            env={**os.environ, **(environ or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DockerFailed(f"docker {' '.join(arguments[:2])} did not end within {timeout_s:g} s") from None
    if done.returncode != 0 and not (partly and done.stdout.strip()):
        raise DockerFailed(_explained(arguments, done.stderr.strip() or done.stdout.strip()))
    return done.stdout


def inspect(kind: str, names: Sequence[str]) -> bytes:
    """Return a JSON list of services, tasks, nodes or configs. Names that no longer exist are left out.

    Raises:
        DockerMissing: no docker command is on PATH.
        DockerFailed: the engine does not answer, or manages no Swarm.
    """
    return run(["inspect", "--type", kind, *names], partly=True).encode() if names else b"[]"


def last_lines(task: str, count: int, timeout_s: float) -> list[str]:
    """Return the last log lines of a task's container, or an empty list when its machine does not answer."""
    try:
        done = subprocess.run(
            [_program(), "service", "logs", "--raw", "--tail", str(count), task],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return []
    return [line.rstrip() for line in done.stdout.splitlines() if line.strip()][-count:]


def attach(arguments: Sequence[str]) -> int:
    """Run a docker command on the terminal, and return its exit code."""
    return subprocess.run([_program(), *arguments], check=False).returncode


def _program() -> str:
    program = shutil.which("docker")
    if program is None:
        raise DockerMissing("there is no docker command on PATH; install Docker (docs.docker.com/engine/install)")
    return program


def _explained(arguments: Sequence[str], said: str) -> str:
    if _NOT_A_MANAGER in said:
        return (
            "this Docker engine does not manage a Swarm: make it a manager with docker swarm init, or choose a manager with "
            "DOCKER_HOST or docker context use"
        )
    if _FORBIDDEN in said:
        return (
            f"{said}: no service of a stack may have extends, cpuset, cpu_quota, cpu_shares, mem_limit, memswap_limit, "
            "volumes_from or volume_driver; limits stand below deploy: resources:"
        )
    if any(word in said for word in _UNKNOWN):
        version = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=False).stdout.strip()
        return (
            f"{version} does not know `docker {' '.join(arguments[:2])}`: version 25 or newer of the command is needed"
        )
    return said.removeprefix("Error response from daemon: ") or f"docker {' '.join(arguments[:2])} failed"
