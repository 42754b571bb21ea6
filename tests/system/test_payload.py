"""Tensors in fewer bytes, through a real Redis and a real node."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.http import InferenceServerClient, InferInput

from cluster_serving.client import AsyncInputQueue, Failed, InputQueue, RecordFailed, keys
from cluster_serving.client.protocol import payload
from cluster_serving.client.wire.compression import compress
from cluster_serving.client.wire.values import encode_record
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "payload"
Rows = Sequence[NDArray[Any]]


@pytest.fixture(scope="module")
def node(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "sums.py")
    with running_node(tmp_path_factory.mktemp("node"), redis_server, modelPath=model, jobName=JOB, batchSize=8) as node:
        yield node


@pytest.fixture
def compressed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The contents of all compressed fields, on a way that is always slow enough for them."""
    sent: list[bytes] = []

    def noted(array: NDArray[Any], codec: Any) -> bytes:
        sent.append(compress(array, codec))
        return sent[-1]

    monkeypatch.setattr(payload, "compress", noted)
    monkeypatch.setattr(payload.Payload, "_sample_pays", _always)
    return sent


def _always(*_: object) -> bool:
    return True


def rows() -> list[NDArray[Any]]:
    """Rows that are sent in different forms: as uint8, compressed, narrow and compressed, and as they are."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64))
    noise = np.random.default_rng(0).integers(-(2**22), 2**22, (64, 64))
    given = [pixels, np.full((64, 64), 0.5), np.full((64, 64), 7), noise]
    return [row.astype(dtype) for row in given for dtype in (np.float32, np.float64)] * 4


def check(answers: Sequence[Any]) -> None:
    for (total, last), row in zip(answers, rows(), strict=True):
        assert (total, last) == (row.sum(dtype=np.float64), row[-1, -1])


def by_predict(port: int, codec: Any) -> list[Any]:
    with InputQueue(port=port, name=JOB, compress=codec) as queue:
        return [queue.predict({"x": row}, 60) for row in rows()]


def by_predict_many(port: int, codec: Any) -> list[Any]:
    with InputQueue(port=port, name=JOB, compress=codec) as queue:
        return list(queue.predict_many([{"x": row} for row in rows()]))


def by_as_completed(port: int, codec: Any) -> list[Any]:
    with InputQueue(port=port, name=JOB, compress=codec) as queue:
        found = {each.uri: each for each in queue.as_completed((str(at), {"x": row}) for at, row in enumerate(rows()))}
    return [list(found[str(at)].outputs.values()) for at in range(len(found))]


def by_enqueue_many(port: int, codec: Any) -> list[Any]:
    with InputQueue(port=port, name=JOB, compress=codec) as queue:
        uris = [f"{codec}-{at}" for at in range(len(rows()))]
        queue.enqueue_many(zip(uris, [{"x": row} for row in rows()], strict=True))
        found: dict[str, Any] = {}
        wait_until(lambda: found.update(queue.output_queue.dequeue()) or len(found) == len(uris), "all results")
        return [found[uri] for uri in uris]


def by_asyncio(port: int, codec: Any) -> list[Any]:
    async def call() -> list[Any]:
        async with AsyncInputQueue(port=port, name=JOB, compress=codec) as queue:
            first = await queue.predict({"x": rows()[0]}, 60)
            return [first, *[each async for each in queue.predict_many([{"x": row} for row in rows()[1:]])]]

    return asyncio.run(call())


@pytest.mark.parametrize("call", [by_predict, by_predict_many, by_as_completed, by_enqueue_many, by_asyncio])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.usefixtures("node")
def test_answers_are_those_of_plain_tensors(
    call: Callable[[int, Any], list[Any]], codec: str, redis_server: PrivateRedis, compressed: list[bytes]
) -> None:
    check(call(redis_server.port, codec))

    assert compressed
    assert max(map(len, compressed)) <= 64 * 64 * 4 + 100
    assert min(map(len, compressed)) < 200


@pytest.mark.usefixtures("node")
def test_a_row_is_the_same_in_every_form(redis_server: PrivateRedis) -> None:
    row = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 128
    fields = [
        *encode_record("u", {"x": row})[2:],
        *encode_record("u", {"x": row.astype(np.uint8)})[2:],
        *encode_record("u", {"x": row.astype(np.float16)})[2:],
        *(part for codec in ("lz4", "zstd") for part in (keys.COMPRESSED + b"x", compress(row, codec))),
    ]
    forms = [fields[at : at + 2] for at in range(0, len(fields), 2)]

    with redis_server.client() as client, InputQueue(port=redis_server.port, name=JOB) as queue:
        with client.pipeline() as commands:
            for number in range(40):
                commands.execute_command("XADD", JOB, "*", "uri", f"form-{number}", *forms[number % len(forms)])
            commands.execute()
        found: dict[str, Any] = {}
        wait_until(lambda: found.update(queue.output_queue.dequeue()) or len(found) == 40, "all results")

    assert {tuple(map(float, answer)) for answer in found.values()} == {(float(row.sum()), 127.0)}


@pytest.mark.usefixtures("node")
def test_a_bomb_is_answered_with_an_error(redis_server: PrivateRedis) -> None:
    bomb = msgspec.msgpack.encode(("zstd", "uint8", (1 << 20, 1 << 20), b"never read"))

    with redis_server.client() as client, InputQueue(port=redis_server.port, name=JOB) as queue:
        client.xadd(JOB, {keys.URI: b"bomb", keys.COMPRESSED + b"x": bomb})
        found = wait_until(queue.output_queue.dequeue, "an answer")["bomb"]
        total, last = queue.predict({"x": np.ones((64, 64), np.float32)}, 60)

    assert isinstance(found, Failed)
    assert found.code == "InvalidInput"
    assert "input 'x': the compressed tensor of uint8 [1048576, 1048576] is too large" in found.reason
    assert (total, last) == (4096, 1)


@pytest.mark.usefixtures("node")
def test_a_frontend_sends_in_fewer_bytes_too(redis_server: PrivateRedis, tmp_path: Path) -> None:
    row = (np.arange(64 * 64, dtype=np.float32) % 128).reshape(1, 64, 64)
    tensor = InferInput("x", list(row.shape), "FP32").set_data_from_numpy(row)
    with (
        running_frontend(tmp_path, redis_server, jobName=JOB, compress="lz4") as frontend,
        InferenceServerClient(frontend.url.removeprefix("http://")) as http,
        redis_server.client() as client,
    ):

        def received() -> int:
            """Bytes that Redis gets for a request."""
            before = client.info("stats")["total_net_input_bytes"]
            total = http.infer(JOB, [tensor]).as_numpy("total")
            assert total is not None
            assert total.item() == row.sum()
            return int(client.info("stats")["total_net_input_bytes"] - before)

        # The first requests leave as they are, while the nodes are asked for.
        wait_until(lambda: received() < row.nbytes / 2, "the tensor leaves as uint8")


def test_answers_in_float16(redis_server: PrivateRedis, tmp_path: Path) -> None:
    rows = [np.full((64, 64), value, np.float32) for value in (0.1, 20, 3)]
    settings = {"modelPath": str(MODELS / "sums.py"), "jobName": "halved", "outputDtype": "float16", "batchSize": 8}
    with (
        running_node(tmp_path / "node", redis_server, **settings) as node,
        InputQueue(port=redis_server.port, name="halved") as queue,
    ):
        answers: list[Any] = list(queue.predict_many([{"x": row} for row in rows]))
        assert [output["dtype"] for output in node.heartbeat()["outputs"]] == ["float16", "float16"]

    (total, last), failed, (other, _) = answers
    assert (total.dtype, last.dtype) == (np.float16, np.float16)
    assert (total, last, other) == (np.float16(rows[0].sum()), np.float16(0.1), 12_288)
    assert isinstance(failed, RecordFailed)
    assert "output 'total' has numbers that float16 does not hold, 65520 or more from 0" in str(failed)
