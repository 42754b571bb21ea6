"""The health checks of the images, on servers outside of them."""

import os
import signal
import subprocess
from pathlib import Path

import psutil

from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import running_frontend
from support.running_node import running_node
from support.wait import wait_until

HEALTHY = Path(__file__).parents[2] / "docker" / "healthy.sh"
JOB = "health"


def is_healthy(server: str, **variables: str) -> bool:
    return subprocess.run([HEALTHY, server], env=os.environ | variables, stderr=subprocess.DEVNULL).returncode == 0


def test_a_node_is_healthy_while_it_serves_and_while_redis_is_away(own_redis: PrivateRedis, tmp_path: Path) -> None:
    home = tmp_path / "node"
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "redisTimeout": 500}

    def healthy() -> bool:
        return is_healthy("node", CLUSTER_SERVING_HOME=str(home / "state"))

    with running_node(home, own_redis, **settings) as node:
        wait_until(healthy, "the node is healthy")
        own_redis.stop()
        wait_until(lambda: "no heartbeat" in node.log, "the node has seen that Redis is away")
        os.utime(home / "state" / JOB / "serving", (0, 0))
        wait_until(healthy, "the node is healthy without Redis")
        own_redis.start()

        node.stop()

        assert not healthy()


def test_a_node_that_hangs_becomes_unhealthy(own_redis: PrivateRedis, tmp_path: Path) -> None:
    home = tmp_path / "node"

    def healthy() -> bool:
        return is_healthy("node", CLUSTER_SERVING_HOME=str(home / "state"))

    with running_node(home, own_redis, modelPath=str(MODELS / "affine.py"), jobName=JOB) as node:
        wait_until(healthy, "the node is healthy")
        node.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(node.process.pid).status() == psutil.STATUS_STOPPED, "the node stands still")
        half_a_minute_ago = (home / "state" / JOB / "serving").stat().st_mtime - 31
        os.utime(home / "state" / JOB / "serving", (half_a_minute_ago, half_a_minute_ago))

        assert not healthy()

        node.process.send_signal(signal.SIGCONT)
        wait_until(healthy, "the node is healthy again")


def test_a_frontend_is_healthy_without_nodes_until_it_stops(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path, own_redis) as frontend:
        assert is_healthy("frontend", CLUSTER_SERVING_PORT=str(frontend.port))

        frontend.stop()

        assert not is_healthy("frontend", CLUSTER_SERVING_PORT=str(frontend.port))
