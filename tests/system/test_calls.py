"""A model with a scalar and a state, served as calls (what `auto` finds) and as rows: by the queue and by every HTTP API."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import np_to_triton_dtype

from cluster_serving.client import InputQueue, RecordFailed
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node

Array = np.ndarray[Any, np.dtype[Any]]


class Served:
    """The nodes of the two jobs, and a frontend."""

    def __init__(self, server: PrivateRedis, nodes: dict[str, RunningNode], frontend: RunningFrontend) -> None:
        self.server = server
        self.nodes = nodes
        self.frontend = frontend

    def post(self, path: str, document: Any) -> Any:
        """The answer to JSON."""
        request = urllib.request.Request(f"{self.frontend.url}{path}", json.dumps(document).encode())  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - our own http URL
            return json.loads(response.read())


@pytest.fixture(scope="module")
def served(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home, path = tmp_path_factory.mktemp("calls"), str(MODELS / "stream.py")
    with ExitStack() as stack:
        nodes = {
            job: stack.enter_context(running_node(home / job, redis_server, modelPath=path, jobName=job, **settings))
            for job, settings in (("calls", {}), ("rows", {"batching": "rows"}))
        }
        yield Served(redis_server, nodes, stack.enter_context(running_frontend(home / "frontend", redis_server)))


def state_of(row: int) -> Array:
    return np.arange(6, dtype=np.float32).reshape(2, 3) + row


def call(rows: int, rate: int = 3) -> dict[str, Array]:
    x = np.arange(4 * rows, dtype=np.float32).reshape(rows, 4)
    return {
        "x": x,
        "state": state_of(0)[:, np.newaxis] + np.arange(rows, dtype=np.float32)[:, np.newaxis],
        "rate": np.array(rate),
    }


def assert_answers(found: Any, sent: dict[str, Array]) -> None:
    y, after, used = map(np.asarray, found)
    np.testing.assert_array_equal(y, sent["x"] * sent["rate"])
    np.testing.assert_array_equal(after, sent["state"] + 1)
    assert (used.shape, used.item()) == ((), sent["rate"])


def test_the_node_says_which_and_why(served: Served) -> None:
    beats = {job: node.heartbeat() for job, node in served.nodes.items()}

    assert beats["calls"]["batching"] == "none: input 'rate' has no batch dimension"
    assert beats["rows"]["batching"] == "rows (checked: largest difference 0)"
    assert "none: input 'rate' has no batch dimension" in served.nodes["calls"].log


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_a_call_goes_through_as_it_is(served: Served, rows: int) -> None:
    with InputQueue(port=served.server.port, name="calls") as queue:
        assert_answers(queue.predict(call(rows), timeout=60), call(rows))


def test_a_row_is_no_call(served: Served) -> None:
    row = {"x": np.zeros(4, np.float32), "state": state_of(0), "rate": np.array(1)}
    refused = pytest.raises(RecordFailed, match=r"input 'x' takes float32 \[\?,4\] a record, not float32 \[4\]")
    with InputQueue(port=served.server.port, name="calls") as queue, refused:
        queue.predict(row, timeout=60)


def test_rows_of_many_records_ride_together_and_each_gets_its_own(served: Served) -> None:
    records = [
        {"x": np.full(4, row, np.float32), "state": state_of(row), "rate": np.array(8 if row % 2 else 16)}
        for row in range(200)
    ]
    with InputQueue(port=served.server.port, name="rows") as queue:
        before = served.nodes["rows"].heartbeat()["runs"]
        for record, found in zip(records, queue.predict_many(records), strict=True):
            assert_answers(found, record)
        assert_answers(queue.predict(call(1), timeout=60), call(1))
        assert_answers(queue.predict(call(7), timeout=60), call(7))

    assert served.nodes["rows"].heartbeat()["runs"] - before < 200


@pytest.mark.parametrize("job", ["calls", "rows"])
def test_open_inference_protocol(served: Served, job: str) -> None:
    sent = call(3)
    with triton.InferenceServerClient(f"127.0.0.1:{served.frontend.port}") as client:
        inputs = [
            triton.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)) for name, array in sent.items()
        ]
        for tensor, array in zip(inputs, sent.values(), strict=True):
            tensor.set_data_from_numpy(array)
        result = client.infer(job, inputs)
        metadata, config = client.get_model_metadata(job), client.get_model_config(job)

    assert_answers([result.as_numpy(name) for name in ("y", "next", "used")], sent)
    assert [tensor["shape"] for tensor in metadata["inputs"]] == [[-1, 4], [2, -1, 3], []]
    assert (config["max_batch_size"] == 0) == (job == "calls")
    dims = [[-1, 4], [2, -1, 3], []] if job == "calls" else [[4], [2, 3], []]
    assert [tensor["dims"] for tensor in config["input"]] == dims


def test_rest_of_tensorflow_serving(served: Served) -> None:
    sent = {name: array.tolist() for name, array in call(2).items()}

    columns = served.post("/v1/models/calls:predict", {"inputs": sent})["outputs"]
    rows = served.post("/v1/models/calls:predict", {"instances": [sent, sent]})["predictions"]
    shared = {"x": [1, 2, 3, 4], "state": state_of(0).tolist(), "rate": 2}
    of_rows = served.post("/v1/models/rows:predict", {"instances": [shared] * 2})["predictions"]

    assert_answers([columns[name] for name in ("y", "next", "used")], call(2))
    for row in rows:
        assert_answers([row[name] for name in ("y", "next", "used")], call(2))
    assert [row["y"] for row in of_rows] == [[2, 4, 6, 8]] * 2


def test_the_originals_rest(served: Served) -> None:
    sent = {name: array.tolist() for name, array in call(2).items()}

    [text] = served.post("/predict/calls", {"instances": [sent]})["predictions"]

    assert r"\"data\":[3],\"shape\":[]" in text
    assert r"\"shape\":[2,2,3]" in text
