"""Outputs that do not fit into a slot together, of a model that does not tell their size: nobody waits for a lease."""

import signal
from pathlib import Path

import numpy as np
import pytest

from cluster_serving.client import InputQueue, keys
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.measured]
JOB = "masks"
ROWS = 32
SLOT = 1 << 20  # room for 6 of them
MODEL = """
import numpy as np

class Model:
    inputs = [("x", "float32", ({rows}, {columns}))]
    outputs = [("mask", "float32", (None, None))]

    def predict(self, batch):
        return {{"mask": np.repeat(batch["x"][:, :1], 40_000 + 40_000 * (batch["x"].shape[1] > 4), axis=1)}}
"""


@pytest.mark.parametrize(
    ("rows", "columns"), [("None", "None"), ("None", "4"), ("8", "4")], ids=["cold", "warm", "of 8 rows"]
)
def test_each_is_answered_at_once(own_redis: PrivateRedis, tmp_path: Path, rows: str, columns: str) -> None:
    """Also after a change of the settings, and where each record may be delivered only once."""
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(rows=rows, columns=columns))
    settings = {"modelPath": str(model), "jobName": JOB, "slotBytes": SLOT, "batchSize": ROWS, "maxBatchDelayMs": 200}
    with (
        running_node(tmp_path / "node", own_redis, lease=60, maxDeliveries=1, **settings) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
        own_redis.client() as client,
    ):
        for generation in (1, 2):
            widths = [4 + 4 * (columns == "None" and number % 3 == 2) for number in range(ROWS)]
            records = [{"x": np.full(width, number, np.float32)} for number, width in enumerate(widths)]

            answers = list(queue.predict_many(records, timeout=300))

            for number, (width, answer) in enumerate(zip(widths, answers, strict=True)):
                assert not isinstance(answer, Exception), answer
                np.testing.assert_array_equal(answer, np.full(10_000 * width, number, np.float32))
            assert (client.xlen(JOB), client.xlen(keys.dead_key(JOB))) == (0, 0)
            if generation == 1:
                node.process.send_signal(signal.SIGHUP)
                wait_until(lambda: node.log.count("event=serving") == 2, "new lanes serve")
                wait_until(lambda: len(node.children("reader")) == 1, "the old ones have ended")
        assert node.heartbeat()["redelivered"] == 0


def rows_run(node: RunningNode, answered: int) -> int:
    """Rows that the model has run when so many records are answered."""
    wait_until(lambda: node.heartbeat().get("answered") == answered, "all are counted")
    return int(node.heartbeat()["rows"])


def test_their_size_is_known_after_a_change_to_the_same_model(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """No row is run twice, which the first batch of a start had to be."""
    model = tmp_path / "model.py"
    model.write_text(MODEL.format(rows="None", columns="None"))
    settings = {"modelPath": str(model), "jobName": JOB, "slotBytes": SLOT, "batchSize": ROWS, "maxBatchDelayMs": 3000}
    with (
        running_node(tmp_path / "node", own_redis, **settings) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        rows: list[int] = []
        for generation in (1, 2):
            assert len(list(queue.predict_many([{"x": np.ones(4, np.float32)}] * ROWS))) == ROWS
            rows.append(rows_run(node, generation * ROWS))
            if generation == 1:
                node.process.send_signal(signal.SIGHUP)
                wait_until(lambda: node.log.count("event=serving") == 2, "new lanes serve")
                wait_until(lambda: len(node.children("reader")) == 1, "the old ones have ended")

    assert rows[0] > ROWS
    assert rows[1] - rows[0] == ROWS


MANY = """
class Model:
    inputs = [("x", "float32", (None, 2))]
    outputs = [(f"a_long_name_of_output_{number:05d}", "float32", (None, 1)) for number in range(800)]

    def predict(self, batch):  # the rows of a batch change each other, so that each row is run by itself
        mean = batch["x"] - batch["x"].mean()
        return {name: mean[:, :1] for name, _, _ in self.outputs}
"""


def test_many_outputs_of_rows_that_run_one_by_one_are_all_answered(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Their descriptions do not fit into a slot together."""
    model = tmp_path / "model.py"
    model.write_text(MANY)
    settings = {"modelPath": str(model), "jobName": JOB, "batchSize": ROWS, "maxBatchDelayMs": 200}
    with (
        running_node(tmp_path / "node", own_redis, **settings) as node,
        InputQueue(port=own_redis.port, name=JOB) as queue,
    ):
        answers = list(queue.predict_many([{"x": np.array([number, 0], np.float32)} for number in range(ROWS)]))

        for number, answer in enumerate(answers):
            assert not isinstance(answer, Exception), answer
            assert [float(array[0]) for array in answer] == [number / 2] * 800
        assert len(node.children("worker")) == node.log.count("event=serving") == 1
