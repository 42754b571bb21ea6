"""A Redis with a replica and a Sentinel that lets the replica take over."""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import redis

from cluster_serving.node.job.redis_program import find_server
from support.private_redis import PrivateRedis, free_port, private_redis
from support.wait import wait_until

_CONF = """
port {port}
bind 127.0.0.1
sentinel monitor mymaster 127.0.0.1 {master} 1
sentinel down-after-milliseconds mymaster 500
sentinel failover-timeout mymaster 3000
"""


class Failover:
    """A master, its replica and a Sentinel on ports of their own."""

    def __init__(self, master: PrivateRedis, replica: PrivateRedis, sentinel_port: int) -> None:
        self.master = master
        self.replica = replica
        self.url = f"redis+sentinel://127.0.0.1:{sentinel_port}/mymaster"
        self._sentinel_port = sentinel_port

    def wait_for_replica(self) -> None:
        """Wait until the replica has all that the master has."""
        with self.master.client() as client:
            client.set("replicated", "1")
            assert client.wait(1, 10_000) == 1

    def is_watched(self) -> bool:
        """Whether the Sentinel knows the master and the replica."""
        try:
            with redis.Redis(port=self._sentinel_port) as client:
                return bool(client.sentinel_slaves("mymaster"))
        except redis.RedisError:
            return False

    def has_new_master(self) -> bool:
        """Whether the replica has taken over."""
        with self.replica.client() as client:
            return bool(client.info("replication")["role"] == "master")


@contextmanager
def failover(directory: Path) -> Generator[Failover]:
    """All three for a block; kill the master with `master.stop`."""
    port = free_port()
    for name in ("master", "replica"):
        (directory / name).mkdir()
    with (
        private_redis(directory / "master", "--repl-diskless-sync-delay", "0") as master,
        private_redis(directory / "replica", "--replicaof", "127.0.0.1", str(master.port)) as replica,
    ):
        conf = directory / "sentinel.conf"
        conf.write_text(_CONF.format(port=port, master=master.port))
        process = subprocess.Popen([find_server(os.environ).path, conf, "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            found = Failover(master, replica, port)
            wait_until(found.is_watched, "the Sentinel knows the replica", 30)
            yield found
        finally:
            process.terminate()
            process.wait(10)
