"""A real node: `cluster-serving start --foreground` with real children, for a block."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import redis
import yaml

from cluster_serving.client import keys
from support.private_redis import PrivateRedis
from support.wait import wait_until


class RunningNode:
    """A node in the foreground, in a job directory of its own."""

    def __init__(self, home: Path, server: PrivateRedis, **config: Any) -> None:
        self.job = str(config.setdefault("jobName", "test_job"))
        self._server = server
        self._home = home
        # A session has its share of the processor, and a shadow, which is idle, would get nothing in the session of all tests.
        self._own_session = "shadow" in config
        config.setdefault("redisUrl", server.url)
        config.setdefault("modelParallelism", 1)
        config.setdefault("threadPerModel", 1)
        home.mkdir(parents=True, exist_ok=True)
        self.config_path = home / "config.yaml"
        self.config_path.write_text(yaml.safe_dump(config))
        self.log_path = home / "test.log"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        command = [
            sys.executable,
            "-P",
            "-m",
            "cluster_serving.node.cli",
            "start",
            "--foreground",
            "-c",
            str(self.config_path),
        ]
        with self.log_path.open("ab") as log:
            served = self._served
            environment = os.environ | {"CLUSTER_SERVING_HOME": str(self._home / "state")}
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=self._own_session
            )
        try:
            wait_until(lambda: self._ready_or_dead(served), "the node is ready", 240)
        except BaseException:
            with self.process:
                self.process.kill()
            raise
        if self.process.poll() is not None:
            raise AssertionError(f"the node ended with {self.process.returncode}:\n{self.log_path.read_text()}")

    @property
    def log(self) -> str:
        """Text that the node has printed so far."""
        return self.log_path.read_text()

    def heartbeat(self) -> dict[str, Any]:
        """Return the heartbeat that the node tells Redis. On a busy machine the node may tell none for a while."""
        return wait_until(self.heartbeat_now, "the node tells a heartbeat")

    def heartbeat_now(self) -> dict[str, Any]:
        """Return the heartbeat; empty: there is none."""
        return self._told()[1]

    def settle(self) -> dict[str, Any]:
        """Wait until it is ready with all its workers in one lane, whatever a test has done to it; the heartbeat of then."""
        wait_until(lambda: all(len(self.children(kind)) == 1 for kind in ("reader", "writer")), "one lane is left")
        with self._server.client() as client:
            client.delete(self._told()[0])  # the next one is new

        def whole() -> dict[str, Any]:
            beat = self.heartbeat_now()
            return beat if beat and beat["state"] == "ready" and beat["workers_alive"] == beat["workers"] else {}

        return wait_until(whole, "it is ready with all its workers")

    def _told(self) -> tuple[bytes, dict[str, Any]]:
        with self._server.client() as client:
            try:
                for key in client.scan_iter(keys.node_key(self.job, "*")):
                    beat = dict(json.loads(client.get(key) or "{}"))
                    if beat.get("pid") == self.process.pid:
                        return key, beat
            except redis.ConnectionError:
                pass
        return b"", {}

    def children(self, kind: str) -> list[psutil.Process]:
        """Its reader, writer or workers."""
        running = psutil.Process(self.process.pid).children()
        return [child for child in running if child.is_running() and _arguments(child)[-1:] == [kind]]

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 120) -> int:
        """Ask it to stop; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout_s)
        assert "Traceback" not in self.log, self.log
        return code

    @property
    def _served(self) -> int:
        """Number of times that the log tells of lanes that serve, which it does after the heartbeat."""
        return self.log.count("event=serving")

    def _ready_or_dead(self, served: int) -> bool:
        beat = self.heartbeat_now()
        return self.process.poll() is not None or (beat.get("state") == "ready" and self._served > served)


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def running_node(home: Path, server: PrivateRedis, **config: Any) -> Generator[RunningNode]:
    """A node for a block; its log is shown when the block fails."""
    node = RunningNode(home, server, **config)
    try:
        yield node
    except BaseException:
        print(node.log)
        raise
    finally:
        if node.process.poll() is None:
            node.stop()
