"""Redis with replicas on the lab: one server and one Sentinel on each host, and a program that sends records through Sentinels."""

import json
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from support.swarm import images, sender
from support.swarm.lab import Lab
from support.swarm.stack import OVERRIDE, Stack, deployed
from support.wait import wait_until

HOSTS: Final = {"redis": "m1", "redis-2": "w1", "redis-3": "w2"}
IMAGES: Final = ("--node-image", images.node_image("1"), "--frontend-image", images.FRONTEND)
_CLI: Final = 'REDISCLI_AUTH="$(cat /run/secrets/redis_password)" redis-cli --raw "$@"'
_SENTINELS: Final = ("sentinel", "sentinel-2", "sentinel-3")
_SENDER: Final = "sender"


@contextmanager
def replicated(
    lab: Lab, directory: Path, name: str, *options: str, settings: Mapping[str, object] | None = None
) -> Generator[Stack]:
    """A stack with replicas for a block, with more options of `deploy`."""
    for service in ("redis-2", "redis-3"):
        lab.docker("m1", "node", "update", "--label-add", f"redis={service[-1]}", HOSTS[service])
    with deployed(lab, directory, name, OVERRIDE, settings=settings or {}) as stack:
        stack.deploy("--with", "replicas", *options, *IMAGES)
        wait_until(lambda: is_whole(stack), "both replicas follow", 60)
        yield stack


def host_of(service: str) -> str:
    """The host of a Redis, or of a Sentinel."""
    return HOSTS[service.replace("sentinel", "redis")]


def redis_cli(stack: Stack, service: str, *words: str) -> list[str]:
    """Run redis-cli in the container of a service; the lines that it printed, none without a container that answers."""
    port = ("-p", "26379") if service.startswith("sentinel") else ()
    for container in stack.containers(host_of(service), service):
        with suppress(AssertionError):  # it has just ended
            return stack.lab.docker(
                host_of(service), "exec", container, "sh", "-c", _CLI, "-", *port, *words
            ).splitlines()
    return []


def master(stack: Stack, sentinel: str = "sentinel") -> str:
    """The master that a Sentinel names, that of the manager's host if not told otherwise; empty while it does not run."""
    found = redis_cli(stack, sentinel, "sentinel", "get-master-addr-by-name", "serving")
    return found[0] if found else ""


def is_whole(stack: Stack) -> bool:
    """Return whether both replicas follow the master that every Sentinel names."""
    found = {master(stack, sentinel) for sentinel in _SENTINELS}
    return len(found) == 1 and "connected_slaves:2" in redis_cli(stack, *found, "info", "replication")


@contextmanager
def sending(stack: Stack, directory: Path, *arguments: str) -> Generator[dict[str, Any]]:
    """A program on the manager's host that enqueues for a block (sender.py); what it found at its end."""
    found: dict[str, Any] = {}
    docker = stack.lab.docker
    mounts = ("-v", f"{sender.__file__}:/sender.py:ro", "-v", f"{directory / 'password.txt'}:/password.txt:ro")
    (directory / "password.txt").write_text(stack.client["password"])
    run = ("run", "-d", "--name", _SENDER, "--network", f"{stack.name}_serving", *mounts, "--entrypoint", "python")
    docker("m1", *run, images.node_image("1"), "-u", "/sender.py", *arguments)
    try:
        yield found
        docker("m1", "stop", "-t", "90", _SENDER)
        printed = docker("m1", "logs", _SENDER)
        line = re.search(r"^\{.*\}$", printed, re.MULTILINE)
        assert line, f"the sender printed no figures:\n{printed}"
        found |= json.loads(line[0])
    finally:
        stack.lab.tries("docker", "m1", "rm", "-f", _SENDER)
