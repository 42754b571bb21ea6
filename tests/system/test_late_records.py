"""Records that cannot be answered before their deadlines are refused while others wait, and cost no run of the model."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue, OutputQueue, RedisRefused
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire.values import encode_record
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.wait import wait_until

JOB = "late"


def start(home: Path, server: PrivateRedis, **settings: Any) -> Any:
    """A node of the job, for a block: a batch takes as long as its rows say."""
    return running_node(home, server, modelPath=str(MODELS / "slow.py"), jobName=JOB, **settings)


def queue(server: PrivateRedis, deadline_s: float | None = None) -> InputQueue:
    return InputQueue(port=server.port, name=JOB, deadline_s=deadline_s)


def row(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([seconds, 0], np.float32)


def test_a_record_is_refused_at_once_where_its_deadline_is_nearer_than_its_answer(
    own_redis: PrivateRedis, tmp_path: Path
) -> None:
    with (
        start(tmp_path, own_redis, batchSize=1) as node,
        queue(own_redis) as patient,
        queue(own_redis, 120) as calm,
        queue(own_redis, 6) as hasty,
        OutputQueue(port=own_redis.port, name=JOB) as output,
    ):
        for _ in range(2):  # the first run tells nothing
            calm.predict(row(3), timeout=60)
        patient.enqueue("running", x=row(9))
        hasty.enqueue("hasty", x=row(0))
        calm.enqueue("calm", x=row(0))
        first: dict[str, Any] = wait_until(output.dequeue, "something is answered")
        rest: dict[str, Any] = {}
        wait_until(lambda: rest.update(output.dequeue()) or len(rest) == 2, "the others are")
        wait_until(lambda: node.heartbeat().get("rows") == 4, "the heartbeat tells")

    assert [*first] == ["hasty"], "it waits for no run"
    assert first["hasty"].code == ErrorCode.DEADLINE_EXCEEDED
    assert "at this load an answer takes about" in first["hasty"].reason
    assert {*rest} == {"running", "calm"}


def test_a_first_run_that_is_held_up_makes_no_record_late(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with start(tmp_path, own_redis, batchSize=1), queue(own_redis, 30) as calm, queue(own_redis, 10) as hasty:
        calm.predict(row(2), timeout=60)
        answers = list(hasty.predict_many([row(0)] * 100, timeout=60))

    assert len(answers) == 100


def test_rows_are_not_all_taken_for_as_dear_as_the_dearest(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with start(tmp_path, own_redis, batchSize=1), queue(own_redis, 60) as calm, queue(own_redis, 10) as hasty:
        for seconds in (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3):
            calm.predict(row(seconds), timeout=60)
        calm.enqueue("running", x=row(3))
        hasty.enqueue_many((str(n), {"x": row(0)}) for n in range(12))
        answers: dict[str, Any] = {}
        with OutputQueue(port=own_redis.port, name=JOB) as output:
            wait_until(lambda: answers.update(output.dequeue()) or len(answers) == 13, "all are answered")

    assert all(isinstance(answer, np.ndarray) for answer in answers.values()), answers


def test_an_estimate_that_is_too_long_keeps_no_empty_node_from_trying(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with start(tmp_path, own_redis, batchSize=1), queue(own_redis, 30) as calm, queue(own_redis) as hasty:
        for _ in range(2):
            calm.predict(row(6), timeout=60)

        assert hasty.predict(row(0), timeout=7).tolist() == [0, 0]


def test_what_is_computed_under_overload_is_mostly_in_time(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Four times as much as fits: 20 ms for at most 4 records, one every 1.25 ms, each with a second to live."""
    with start(tmp_path, own_redis, batchSize=4) as node:
        with queue(own_redis, 1) as source:
            begun_s = time.monotonic()
            sent = 0
            while sent < 2400:
                due = min(2400, 40 + round((time.monotonic() - begun_s) * 800))  # caught up with after a stop
                sent += source.enqueue_many((str(n), {"x": row(0.02)}) for n in range(sent, due))
                time.sleep(0.05)
        found: Counter[bool] = Counter()
        with OutputQueue(port=own_redis.port, name=JOB) as output:

            def all_there() -> bool:
                found.update(isinstance(answer, np.ndarray) for answer in output.dequeue().values())
                return found.total() == sent

            wait_until(all_there, "all are answered")
        wait_until(lambda: node.heartbeat().get("answered", 0) >= found[True], "the heartbeat tells")
        computed = node.heartbeat()["rows"]

    assert found[False] > found[True] > 0, "more came than fits"
    assert found[True] > 0.7 * computed


def test_a_record_with_an_id_of_its_own_ends_no_call(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """All later ids are as large, and after the last possible id Redis takes no record until the ids begin anew."""
    encoded = encode_record("own", {"x": row(0)})
    record = dict(zip(encoded[::2], encoded[1::2], strict=True))

    with start(tmp_path, own_redis, lease=3600) as node, queue(own_redis, 30) as calm, own_redis.client() as client:
        client.xadd(JOB, record, id="99999999999999999-0")
        assert calm.predict(row(0), timeout=60).tolist() == [0, 0]
        client.xadd(JOB, record, id=f"{(1 << 64) - 1}-{(1 << 64) - 1}")

        def served() -> bool:
            try:
                return bool(calm.predict(row(0), timeout=60).tolist() == [0, 0])
            except RedisRefused as error:
                if "exhausted" not in str(error):
                    raise
                return False

        wait_until(served, "records are taken again")

    assert "the ids of the stream begin anew" in node.log
