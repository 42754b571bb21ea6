"""A Redis with two replicas and three Sentinels, and a node and a frontend that reach the master through the Sentinels."""

import json
import os
import shutil
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import redis
import yaml

from bench import poison_model
from bench.http_faults import Part
from cluster_serving.client import keys
from cluster_serving.node.job.redis_program import find_server

JOB = "bench_failover"
HTTP_PORT = 26400
COPIES = 2
DOWN_S = 2.0
"""Seconds of silence after which a Sentinel takes the master for dead."""
OURS = "bench"
"""Name of the connections of the bench in `CLIENT LIST`."""
_REDIS_PORTS = (26401, 26402, 26403)
_SENTINEL_PORTS = (26404, 26405, 26406)
_PATIENCE_S = 60.0
_CONF = """
port {port}
bind 127.0.0.1
sentinel monitor mymaster 127.0.0.1 {master} 2
sentinel down-after-milliseconds mymaster {down_ms:.0f}
sentinel failover-timeout mymaster 10000
"""
URL = f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in _SENTINEL_PORTS)}/mymaster"


class Servers:
    """All of them. The first Redis is the master, and the first Sentinel, which clients ask first, stands on its machine."""

    def __init__(self, home: Path, own: ExitStack, *options: str) -> None:
        program = str(find_server(os.environ).path)
        self._own = own
        self.redis: list[Part] = []
        for number, port in enumerate(_REDIS_PORTS):
            directory = home / f"redis{number}"
            directory.mkdir()
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory), "--save", ""]
            command += ["--appendonly", "yes", "--repl-diskless-sync-delay", "0", *options]
            copies = ["--replicaof", "127.0.0.1", str(_REDIS_PORTS[0])] if number else []
            self.redis.append(self._start([*command, *copies], home / f"redis{number}.log", _answers(port)))
        self.sentinels: list[Part] = []
        for number, port in enumerate(_SENTINEL_PORTS):
            conf = home / f"sentinel{number}.conf"
            conf.write_text(_CONF.format(port=port, master=_REDIS_PORTS[0], down_ms=DOWN_S * 1000))
            command = [program, str(conf), "--sentinel", "--dir", str(home)]
            self.sentinels.append(self._start(command, home / f"sentinel{number}.log", _answers(port)))
        wait_until(self._have_met, "the Sentinels know each other and the replicas")
        self._start_product(home)

    def plan(self) -> None:
        """Let a replica take over from a master that works."""
        with _client(_SENTINEL_PORTS[-1]) as client:
            client.execute_command("SENTINEL FAILOVER", "mymaster")

    def has_new_master(self) -> bool:
        """Return whether the last Sentinel names another master."""
        with _client(_SENTINEL_PORTS[-1]) as client:
            address: Any = client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", "mymaster")
        return int(address[1]) != _REDIS_PORTS[0]

    def is_left(self) -> bool:
        """Return whether no link of node, frontend or programs is connected to the former master any more."""
        with _client(_REDIS_PORTS[0]) as client:
            connected: Any = client.client_list(_type="normal")
        return not [each for each in connected if each["name"] != OURS and not each["name"].startswith("sentinel-")]

    def copied(self) -> bool:
        """Write to the first master, and return whether both replicas have what it had taken before.

        Raises:
            redis.RedisError: it cannot be reached, or takes no writes any more.
        """
        with _client(_REDIS_PORTS[0]) as client:
            client.set("bench_mark", 1)
            return int(client.wait(COPIES, 500)) == COPIES

    def _start(self, command: Sequence[str], log: Path, answers: Callable[[int], bool]) -> Part:
        part = Part(command, log, answers)
        self._own.callback(part.end, signal.SIGKILL)
        return part

    def _start_product(self, home: Path) -> None:
        config = home / "config.yaml"
        model = home / "model" / "model.py"
        model.parent.mkdir()
        shutil.copy(poison_model.__file__, model)
        settings = {"modelPath": str(model), "modelParallelism": 1, "threadPerModel": 1}
        frontend = {"interface": "127.0.0.1", "port": HTTP_PORT}
        config.write_text(yaml.safe_dump({"jobName": JOB, "redisUrl": URL, **settings, "frontend": frontend}))
        python = [sys.executable, "-P", "-m"]
        for name, module, *words in (
            ("node", "cluster_serving.node.cli", "start", "--foreground"),
            ("frontend", "cluster_serving.frontend"),
        ):
            answers = _node_is_ready if name == "node" else _frontend_is_ready
            part = Part([*python, module, *words, "-c", str(config)], home / f"{name}.log", answers)
            self._own.callback(part.end)

    def _have_met(self) -> bool:
        for port in _SENTINEL_PORTS:
            with _client(port) as client:
                master: Any = client.sentinel_master("mymaster")
                ready = [each for each in client.sentinel_slaves("mymaster") if each["master-link-status"] == "ok"]
            if master["num-other-sentinels"] + 1 < len(_SENTINEL_PORTS) or len(ready) < COPIES:
                return False
        return True


@contextmanager
def servers(home: Path, *options: str) -> Generator[Servers]:
    """Run all of them for a block; `options` of each Redis."""
    with ExitStack() as own:
        yield Servers(home, own, *options)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition.

    Raises:
        SystemExit: it took too long.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"not within {_PATIENCE_S:g} s: {what}")
        time.sleep(0.02)


def _client(port: int) -> Any:
    return redis.Redis(port=port, socket_timeout=2, decode_responses=True, client_name=OURS)


def _answers(port: int) -> Callable[[int], bool]:
    def answers(_pid: int) -> bool:
        with suppress(redis.RedisError), closing(redis.Redis(port=port)) as client:
            return bool(client.ping())
        return False

    return answers


def _node_is_ready(_pid: int) -> bool:
    with _client(_REDIS_PORTS[0]) as client:
        return any(
            json.loads(client.get(name) or "{}").get("state") == "ready"
            for name in client.scan_iter(keys.node_key(JOB, "*"))
        )


def _frontend_is_ready(_pid: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}/readyz", timeout=5):
        return True
    return False
