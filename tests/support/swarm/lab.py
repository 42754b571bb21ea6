"""The Swarm that swarm-lab runs on this machine: real engines, and hosts that can be killed, cut off and healed."""

import os
import re
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
_SCRIPT: Final = ROOT.parent / "shared" / "swarm-lab" / "swarm-lab"
_HOSTS: Final = 3
_PATIENCE_S: Final = 600.0
_OLDEST_DOCKER: Final = 25
"""The first one that has `docker stack config`."""


class Lab:
    """A lab that is up; `hosts`: the address of each, the manager's first."""

    def __init__(self) -> None:
        rows = [line.split() for line in self("status").splitlines()[1:]]
        self.hosts = {name: address for name, address, *_ in rows if address != "-"}

    def __call__(self, *arguments: str) -> str:
        """Run a command of the lab; what it printed.

        Raises:
            AssertionError: it failed.
        """
        done = self._run(*arguments)
        assert done.returncode == 0, f"swarm-lab {' '.join(arguments)}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stdout

    def tries(self, *arguments: str) -> bool:
        """Run a command of the lab; whether it went well."""
        return self._run(*arguments).returncode == 0

    def docker(self, host: str, *arguments: str) -> str:
        """Run docker against the engine of a host; what it printed."""
        return self("docker", host, *arguments).strip()

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(_SCRIPT), *arguments], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )

    def environment(self) -> dict[str, str]:
        """The environment of a program that talks to the manager's engine."""
        return os.environ | {"DOCKER_HOST": self.docker("m1")}

    def heal(self) -> None:
        """Put every host back, and wait until the manager counts on all of them."""
        for line in self("status").splitlines()[1:]:
            name, _, engine, link, *_ = line.split()
            if name in self.hosts and (engine, link) != ("running", "up"):
                self("heal", name)
        self("up", str(_HOSTS))


def why_not() -> str:
    """Why there can be no lab here; empty when there can."""
    if not _SCRIPT.exists():
        return f"there is no {_SCRIPT}"
    if os.geteuid() != 0:
        return "swarm-lab needs root"
    release = Path("/etc/os-release")
    if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text():
        return "swarm-lab needs Debian 12"
    docker = shutil.which("docker")
    said = subprocess.run([docker, "--version"], capture_output=True, text=True, check=True).stdout if docker else ""
    found = re.match(r"Docker version (\d+)", said)
    if not found or int(found[1]) < _OLDEST_DOCKER:
        return f"needs the docker command in version {_OLDEST_DOCKER} or newer, and there is {said.strip() or 'none'}"
    return ""


@contextmanager
def running_lab() -> Generator[Lab]:
    """A lab for a block. One that was up before stays up."""
    status = subprocess.run([str(_SCRIPT), "status"], capture_output=True, check=False)
    subprocess.run([str(_SCRIPT), "up", str(_HOSTS)], capture_output=True, timeout=300, check=True)
    lab = Lab()
    try:
        yield lab
    finally:
        if status.returncode == 0:
            lab.heal()
        else:
            lab("down", "--keep-images")
