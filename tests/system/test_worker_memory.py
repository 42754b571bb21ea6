"""Workers that take more and more memory are replaced before the machine has none left."""

from pathlib import Path

import numpy as np

from cluster_serving.client import InputQueue, RecordFailed
from support.models import MODELS, poison
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.wait import wait_until

JOB = "memory"
MODEL = str(MODELS / "poison.py")


def row(value: float) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return {"x": np.array([value, 0, 0, 0], np.float32)}


def test_a_worker_that_grows_is_replaced_and_no_record_is_lost(own_redis: PrivateRedis, tmp_path: Path) -> None:
    settings = {"modelPath": MODEL, "jobName": JOB, "modelParallelism": 2, "maxWorkerMemory": "200m"}
    with (
        running_node(tmp_path / "node", own_redis, **settings) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        for worker in node.children("worker"):
            assert worker.memory_full_info().uss < 200e6 - poison.GROWTH_BYTES
        sent = 0

        def recycled() -> int:
            nonlocal sent
            grows = range(0, 0 if sent else 600, 50)  # once is enough for one of the two workers
            rows = [row(poison.GROWS if n in grows else n) for n in range(1000)]
            answers = list(queue.predict_many(rows, timeout=300))
            assert not [answer for answer in answers if isinstance(answer, RecordFailed)]
            sent += len(rows)
            return int(node.heartbeat().get("recycled", 0))

        wait_until(recycled, "a worker is replaced")

        wait_until(lambda: node.heartbeat().get("workers_alive") == 2, "its successor is there")
        wait_until(lambda: node.heartbeat()["answered"] == sent, "every record is counted")
        assert node.heartbeat()["restarts"] == 0
        assert "takes more than maxWorkerMemory, and is replaced" in node.log
        assert node.stop() == 0


def test_a_limit_that_no_worker_can_keep_is_told_once_and_not_kept(own_redis: PrivateRedis, tmp_path: Path) -> None:
    settings = {"modelPath": MODEL, "jobName": JOB, "modelParallelism": 2, "maxWorkerMemory": "1m"}
    with (
        running_node(tmp_path / "node", own_redis, **settings) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        first = node.heartbeat()
        wait_until(lambda: node.heartbeat() != first or node.log.count("maxWorkerMemory"), "a heartbeat later")

        assert queue.predict(row(1), timeout=60)[0] == 3
        assert node.log.count("maxWorkerMemory is not kept") == 1
        assert "limit_mb=1.0" in node.log
        assert node.heartbeat()["recycled"] == 0
