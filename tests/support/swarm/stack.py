"""A stack on the lab: deployed, scaled and changed by the project's own command, watched through docker and Redis."""

import json
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import redis
import yaml

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from support.swarm import images
from support.swarm.lab import ROOT, Lab
from support.wait import wait_until

OVERRIDE: Final = Path(__file__).with_name("lab.yml")
"""Additions to the stack file that the lab needs."""
BATCH: Final = 8
"""`batchSize` of the nodes."""
_STACK_FILE: Final = ROOT / "swarm" / "stack.yml"
_RELAY: Final = Path(__file__).with_name("relay.py")
_JOB: Final = keys.DEFAULT_JOB
_HTTP_PORT: Final = 10920
_REDIS_PORT: Final = 16379
_PASSWORD: Final = "not a $ecret"  # noqa: S105 - the lab's
_PATIENCE_S: Final = 180.0
_CONFIG: Final = {
    "modelPath": "/opt/model",
    "modelParallelism": 1,
    "threadPerModel": 1,
    "batchSize": BATCH,
    "drainTimeout": 10,
}
_NONE: Final[Mapping[str, object]] = MappingProxyType({})


class Stack:
    """One stack.

    Args:
        lab: where.
        directory: an empty one, for its files.
        name: of the stack.
        overrides: files that are laid over that of the project.
        settings: settings of config.yaml, beside those of every stack.
    """

    def __init__(
        self, lab: Lab, directory: Path, name: str, *overrides: Path, settings: Mapping[str, object] = _NONE
    ) -> None:
        self.lab = lab
        self.name = name
        self._directory = directory
        self._overrides = overrides
        self._variables = {
            "CLUSTER_SERVING_REDIS_IMAGE": images.REDIS,
            "CLUSTER_SERVING_PORT": str(_HTTP_PORT),
            "CLUSTER_SERVING_MODELS": str(directory / "models"),
            "CLUSTER_SERVING_DOCKER_SOCKET": lab.docker("m1").removeprefix("unix://"),
        }
        shutil.copy(_STACK_FILE, directory)
        images.lay_out(directory / "models")
        (directory / "config.yaml").write_text(yaml.safe_dump(_CONFIG | dict(settings)))
        (directory / "redis_password.txt").write_text(f"{_PASSWORD}\n")
        self.redis = RedisSettings(lab.hosts["m1"], _REDIS_PORT, password=_PASSWORD)
        self.client: dict[str, Any] = {"host": self.redis.host, "port": self.redis.port, "password": _PASSWORD}
        self.http = [(address, _HTTP_PORT) for address in lab.hosts.values()]
        self._redis: Any = self.redis.client()

    def deploy(self, *options: str, fails: bool = False) -> str:
        """Deploy, or change what is deployed; what the command printed."""
        paths = (self._directory / _STACK_FILE.name, *self._overrides)
        files = [word for path in paths for word in ("--compose-file", str(path))]
        return self.swarm("deploy", "--resolve-image", "never", *files, *options, fails=fails)

    def let_in(self) -> None:
        """Start what clients reach Redis through, which no port leads to; on the host that Redis is on, which no test cuts off."""
        mount = f"{_RELAY}:/{_RELAY.name}:ro"
        ways = ("--network", f"{self.name}_serving", "-p", f"{_REDIS_PORT}:6379", "-v", mount)
        run = ("run", "-d", "--name", f"{self.name}_relay", *ways, "--entrypoint", "python", images.node_image("1"))
        self.lab.docker("m1", *run, f"/{_RELAY.name}")
        wait_until(self._answers, "Redis answers through the relay", 60)

    def scale(self, nodes: int) -> None:
        """Have so many nodes, and wait until exactly these serve."""
        self.swarm("scale", str(nodes))
        self.await_nodes(nodes)

    def swarm(self, command: str, *arguments: str, fails: bool = False) -> str:
        """Run a command of `cluster-serving swarm` on this stack; what it printed.

        Raises:
            AssertionError: it ended otherwise than it should.
        """
        program = (sys.executable, "-P", "-m", "cluster_serving.node.cli")
        done = subprocess.run(
            [*program, "swarm", command, "--stack", self.name, *arguments],
            cwd=self._directory,
            env=self.lab.environment() | self._variables,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        printed = done.stdout + done.stderr
        assert (done.returncode != 0) is fails, f"swarm {command} ended with {done.returncode}:\n{printed[-4000:]}"
        return printed

    def nodes(self) -> list[str]:
        """The names of the nodes that are ready; they begin with that of the host. None while Redis is away."""
        return [beat["node"] for beat in self._ready()]

    def versions(self) -> set[str | None]:
        """The versions of the nodes that are ready; None for the release that told none."""
        return {beat.get("version") for beat in self._ready()}

    def _ready(self) -> list[dict[str, Any]]:
        try:
            found = [self._redis.get(key) for key in self._redis.scan_iter(keys.node_key(_JOB, "*"))]
        except (redis.RedisError, OSError):
            return []
        beats = [json.loads(beat) for beat in found if beat]
        return [beat for beat in beats if beat["state"] == "ready"]

    def _answers(self) -> bool:
        try:
            return bool(self._redis.ping())
        except (redis.RedisError, OSError):
            return False

    def await_nodes(self, count: int) -> None:
        """Wait until exactly so many nodes serve."""
        wait_until(lambda: len(self.nodes()) == count, f"{count} nodes are ready", _PATIENCE_S)

    def held_by(self, host: str) -> set[str]:
        """The entries that the nodes of a host have read and not answered."""
        consumers = [each["name"] for each in self._redis.xinfo_consumers(_JOB, keys.GROUP)]
        found = [
            self._redis.xpending_range(_JOB, keys.GROUP, "-", "+", 10_000, consumername=consumer)
            for consumer in consumers
            if consumer.decode().startswith(f"{host}-")
        ]
        return {entry["message_id"].decode() for entries in found for entry in entries}

    def containers(self, host: str, service: str) -> list[str]:
        """The running containers of a service on a host."""
        label = f"label=com.docker.swarm.service.name={self.name}_{service}"
        return self.lab.docker(host, "ps", "-q", "--filter", label).split()

    def forget(self) -> None:
        """Remove what `rm` leaves: the volumes."""
        label = f"label=com.docker.stack.namespace={self.name}"
        for host in self.lab.hosts:
            for volume in self.lab.docker(host, "volume", "ls", "-q", "--filter", label).split():
                remove = partial(self.lab.tries, "docker", host, "volume", "rm", volume)
                wait_until(remove, f"volume {volume} of {host} is removed", 60)

    def told(self, service: str, template: str) -> str:
        """Description of a service by the Swarm, in a template of docker's."""
        return self.lab.docker("m1", "service", "inspect", "-f", template, f"{self.name}_{service}")

    def ordered(self, service: str = "node") -> int:
        """Number of tasks of a service that the Swarm is told to run."""
        return int(self.told(service, "{{.Spec.Mode.Replicated.Replicas}}"))


@contextmanager
def deployed(
    lab: Lab, directory: Path, name: str, *overrides: Path, settings: Mapping[str, object] = _NONE
) -> Generator[Stack]:
    """A stack for a block; see `Stack`. Nothing is left of it, its data neither."""
    stack = Stack(lab, directory, name, *overrides, settings=settings)
    try:
        yield stack
    finally:
        lab.heal()
        lab.tries("docker", "m1", "rm", "-f", f"{name}_relay")
        stack.swarm("rm")
        stack.forget()
