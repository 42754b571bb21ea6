"""Rows of different length share the batches of a node."""

from pathlib import Path
from typing import Any

import numpy as np

from cluster_serving.client import InputQueue
from support.private_redis import PrivateRedis
from support.running_node import running_node

SUMS = """
import numpy

class Model:
    inputs = {"ids": "int64 [N,?]", "scale": "float32 [N]"}
    outputs = {"scaled": "float32 [N,?]", "rows": "int64 [N]"}

    def predict(self, batch):
        ids = batch["ids"]
        assert (ids != 13).all(), "13 is none of the words"
        return {"scaled": ids * batch["scale"][:, None], "rows": numpy.full(len(ids), len(ids))}
"""


def test_rows_of_a_node_are_padded_and_cut_back(tmp_path: Path, redis_server: PrivateRedis) -> None:
    (tmp_path / "model.py").write_text(SUMS)
    config = {
        "modelPath": str(tmp_path / "model.py"),
        "padding": {"ids": -1},
        "batching": "rows",  # the second output tells the size of the batch
        "batchSize": 16,
        "maxBatchDelayMs": 300,
    }
    lengths = [14, 15, 16, 17, 18, 18, 40, 14]
    words = [np.arange(100, 100 + length) for length in lengths]
    words[3] = np.arange(17)
    with (
        running_node(tmp_path, redis_server, jobName="padding", **config) as node,
        InputQueue(url=redis_server.url, name=node.job) as queue,
    ):
        records = [{"ids": ids, "scale": np.float32(0.5)} for ids in words]
        results: list[Any] = list(queue.predict_many(records))

    broken = results.pop(3)
    assert "13 is none of the words" in str(broken)
    for ids, (scaled, _) in zip(words[:3] + words[4:], results, strict=True):
        np.testing.assert_array_equal(scaled, ids * np.float32(0.5))
    assert max(int(rows) for _, rows in results) > lengths.count(18)
