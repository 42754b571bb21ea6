"""A real frontend: `cluster-serving frontend` with real processes, for a block."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.private_redis import PrivateRedis, free_port
from support.wait import wait_until


class RunningFrontend:
    """A frontend on a free port of this machine, with a directory of its own."""

    def __init__(self, home: Path, server: PrivateRedis, *options: str, **config: Any) -> None:
        config.setdefault("interface", "127.0.0.1")
        config.setdefault("port", free_port())
        config.setdefault("redisUrl", server.url)
        home.mkdir(parents=True, exist_ok=True)
        self.config_path = home / "frontend.yaml"
        self.config_path.write_text(yaml.safe_dump({"frontend": config}))
        self.log_path = home / "frontend.log"
        self.port = int(config["port"])
        self.url = f"http://127.0.0.1:{self.port}"
        self._options = options
        self.start()

    def start(self) -> None:
        """Start it, and wait until all its processes are ready, and it answers."""
        command = [sys.executable, "-P", "-m", "cluster_serving.frontend", "-c", str(self.config_path), *self._options]
        with self.log_path.open("ab") as log:
            listened = self._listened
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: self.process.poll() is not None or (self._listened > listened and self.answers()),
                "the frontend answers",
                240,
            )
        except BaseException:
            with self.process:
                self.process.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError(f"the frontend ended with {self.process.returncode}:\n{self.log}")

    @property
    def log(self) -> str:
        """Text that the frontend has printed so far."""
        return self.log_path.read_text()

    @property
    def _listened(self) -> int:
        """Number of times that all processes of the frontend have been ready."""
        return self.log.count("event=listening")

    def answers(self) -> bool:
        """Return whether GET /livez is answered with 200."""
        try:
            with urllib.request.urlopen(f"{self.url}/livez", timeout=30) as response:  # noqa: S310 - our own http URL
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 120) -> int:
        """Ask it to stop; its exit code."""
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(timeout_s)
        assert "Traceback" not in self.log, self.log
        return code


@contextmanager
def running_frontend(home: Path, server: PrivateRedis, *options: str, **config: Any) -> Generator[RunningFrontend]:
    """A frontend for a block; its log is shown when the block fails.

    Args:
        home: a directory of its own.
        server: its Redis.
        options: of the command line.
        config: keys of the section `frontend:` of its config file.
    """
    frontend = RunningFrontend(home, server, *options, **config)
    try:
        yield frontend
    except BaseException:
        print(frontend.log)
        raise
    finally:
        if frontend.process.poll() is None:
            frontend.stop()
