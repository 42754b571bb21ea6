"""Sentinels, and a Redis with a replica that takes over."""

import os
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from cluster_serving.node.job.redis_program import find_server
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

_CONF = """
port {port}
bind 127.0.0.1
sentinel monitor mymaster 127.0.0.1 {master} 1
sentinel down-after-milliseconds mymaster {down_ms}
sentinel failover-timeout mymaster 20000
"""

PATIENT_MS, HASTY_MS = 60_000, 500
"""After which a Sentinel takes a server that does not answer for one that is down: a busy machine may hold a server up."""


class Sentinel:
    """A Sentinel that watches a master as `mymaster`."""

    def __init__(self, directory: Path, master: int, *lines: str, **login: Any) -> None:
        self.port = free_port()
        self._login = login
        conf = directory / f"sentinel{self.port}.conf"
        conf.write_text(_CONF.format(port=self.port, master=master, down_ms=PATIENT_MS) + "\n".join(lines) + "\n")
        self._process = subprocess.Popen([find_server(os.environ).path, conf, "--sentinel"], stdout=subprocess.DEVNULL)

    @property
    def url(self) -> str:
        """For `redisUrl`."""
        return f"redis+sentinel://127.0.0.1:{self.port}/mymaster"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def client(self) -> Any:
        """A redis-py client of the Sentinel."""
        return redis.Redis(port=self.port, decode_responses=True, **self._login)

    def knows(self, what: str = "sentinel_master") -> bool:
        """Return whether the Sentinel answers, and knows the master, or with `sentinel_slaves` its replicas."""
        try:
            with self.client() as client:
                return bool(getattr(client, what)("mymaster"))
        except redis.RedisError:
            return False

    def take_for_down(self, after_ms: int) -> None:
        """Take a server for one that is down that has not answered for so long."""
        with self.client() as client:
            client.execute_command("SENTINEL", "SET", "mymaster", "down-after-milliseconds", after_ms)

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(120)


@contextmanager
def sentinel(directory: Path, master: int, *lines: str, **login: Any) -> Generator[Sentinel]:
    """A Sentinel for a block, once it knows its master; `lines` of its configuration, `login` for `client`."""
    started = Sentinel(directory, master, *lines, **login)
    try:
        wait_until(started.knows, "the Sentinel knows its master")
        yield started
    finally:
        started.stop()


class Failover:
    """A master, its replica and a Sentinel on ports of their own."""

    def __init__(self, master: PrivateRedis, replica: PrivateRedis, sentinel: Sentinel) -> None:
        self.master = master
        self.replica = replica
        self.url = sentinel.url
        self._sentinel = sentinel

    def wait_for_replica(self) -> None:
        """Wait until the replica has all that the master has."""
        with self.master.client() as client:
            client.set("replicated", "1")
            assert client.wait(1, 60_000) == 1

    def begin_planned(self) -> None:
        """Let the replica take over from a master that lives, and goes on as one: it may not be told, ten seconds later."""
        with self.master.client() as client:
            client.execute_command("ACL", "SETUSER", "default", "-slaveof", "-replicaof")

        def has_begun() -> bool:
            try:
                with self._sentinel.client() as client:
                    return bool(client.execute_command("SENTINEL", "FAILOVER", "mymaster"))
            except redis.ResponseError:
                return False  # the Sentinel has yet to hear from the replica

        wait_until(has_begun, "the failover begins")

    def kill_master(self) -> None:
        """Kill the master, and let the Sentinel notice it soon."""
        self.master.stop(signal.SIGKILL)
        self._sentinel.take_for_down(HASTY_MS)

    def be_patient(self) -> None:
        """Let the Sentinel take no server that answers late for one that is down: the machine may be busy."""
        self._sentinel.take_for_down(PATIENT_MS)
        with self._sentinel.client() as client:
            wait_until(lambda: not client.sentinel_master("mymaster")["is_sdown"], "the new master counts as up")

    def has_listener(self) -> bool:
        """Return whether a program has subscribed to the events of the Sentinel."""
        with self._sentinel.client() as client:
            return any(int(each["sub"]) for each in client.client_list())

    def has_new_master(self) -> bool:
        """Return whether the replica has taken over."""
        return _role(self.replica) == "master"

    def has_former_master(self) -> bool:
        """Return whether the master still takes itself for a master."""
        return _role(self.master) == "master"


def _role(server: PrivateRedis) -> str:
    with server.client() as client:
        return str(client.info("replication")["role"])


@contextmanager
def failover(directory: Path) -> Generator[Failover]:
    """All three for a block; kill the master with `kill_master`."""
    for name in ("master", "replica"):
        (directory / name).mkdir()
    with (
        private_redis(directory / "master", "--repl-diskless-sync-delay", "0") as master,
        private_redis(directory / "replica", "--replicaof", "127.0.0.1", str(master.port)) as replica,
        sentinel(directory, master.port) as watching,
    ):
        wait_until(lambda: watching.knows("sentinel_slaves"), "the Sentinel knows the replica")
        yield Failover(master, replica, watching)
