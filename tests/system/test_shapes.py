"""Free dimensions, fixed batches, several inputs of mixed kinds, filters, and records that are too large."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import ErrorCode, InputQueue, OutputQueue, RecordFailed
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.wait import wait_until


@pytest.fixture(scope="module")
def free(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InputQueue]:
    home = tmp_path_factory.mktemp("free")
    settings = {"modelPath": str(MODELS / "free.py"), "jobName": "free", "batchSize": 8, "slotBytes": 1 << 16}
    with running_node(home, redis_server, **settings), InputQueue(port=redis_server.port, name="free") as queue:
        yield queue


@pytest.fixture(scope="module")
def fixed(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InputQueue]:
    home = tmp_path_factory.mktemp("fixed")
    settings = {"modelPath": str(MODELS / "fixed.py"), "jobName": "fixed", "postProcessing": "topN(2)"}
    with running_node(home, redis_server, **settings), InputQueue(port=redis_server.port, name="fixed") as queue:
        yield queue


def test_rows_of_many_lengths_meet_only_their_like(free: InputQueue) -> None:
    lengths = [1 + n % 40 for n in range(400)]

    answers: list[Any] = list(free.predict_many({"x": np.ones(length, np.float32)} for length in lengths))

    assert [int(total) for total, _ in answers] == lengths
    assert [len(repeated) for _, repeated in answers] == lengths


def test_a_record_larger_than_a_slot_is_refused_with_the_key_to_change(free: InputQueue) -> None:
    large = {3, 4, 6}
    requests = [{"x": np.ones(20_000 if n in large else 2, np.float32)} for n in range(8)]

    answers: list[Any] = list(free.predict_many(requests))

    failed = {n: answer.reason for n, answer in enumerate(answers) if isinstance(answer, RecordFailed)}
    assert failed.keys() == large
    assert all("larger than a slot of 65536 bytes (slotBytes in config.yaml)" in reason for reason in failed.values())
    assert all(answer[0] == 2 for n, answer in enumerate(answers) if n not in large)


def test_a_result_larger_than_a_slot_fails_alone(free: InputQueue) -> None:
    def request(n: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
        return {"x": np.array([100_000 if n == 5 else 1, 0], np.float32)}

    answers: list[Any] = list(free.predict_many([request(n) for n in range(8)]))

    assert isinstance(answers[5], RecordFailed)
    assert answers[5].code == ErrorCode.RESULT_TOO_LARGE
    assert all(len(answer[1]) == 2 for n, answer in enumerate(answers) if n != 5)


def test_batches_of_a_fixed_size_are_padded_and_filtered(fixed: InputQueue) -> None:
    image = np.full((8, 8), 10, np.uint8)

    answers = list(
        fixed.predict_many(
            {"image": {"image": image}, "bias": np.array([n, 3 * n, 2 * n], np.float32)} for n in range(1, 8)
        )
    )

    assert answers == [[[1, 10.0 + 3 * n], [2, 10.0 + 2 * n]] for n in range(1, 8)]


def test_a_broken_image_fails_alone(fixed: InputQueue, redis_server: PrivateRedis) -> None:
    bias = np.zeros(3, np.float32)
    good = {"image": {"image": np.zeros((16, 4), np.uint8)}, "bias": bias}

    answers = list(fixed.predict_many([good, {"image": b"\xff\xd8\xff\xe0 torn", "bias": bias}, good]))

    assert isinstance(answers[1], RecordFailed)
    assert "input 'image'" in answers[1].reason
    assert answers[0] == answers[2] == [[0, 0.0], [1, 0.0]]


def test_a_filter_answers_the_original_dialect_in_text(
    fixed: InputQueue, redis_server: PrivateRedis, tmp_path: Path
) -> None:
    image = {"image": np.zeros((8, 8, 3), np.uint8)}
    with (
        InputQueue(port=redis_server.port, name="fixed", dialect="original") as queue,
        OutputQueue(port=redis_server.port, name="fixed") as output,
    ):
        queue.enqueue("old", image=image, bias=np.array([0.5, 2.5, 1.5], np.float32))
        wait_until(lambda: output.query("old") != "[]", "the result")

        assert output.query("old") == [[1, 2.5], [2, 1.5]]
    with redis_server.client() as client:
        assert client.hget("cluster-serving_fixed:old", "value") == b"[[1,2.5],[2,1.5]]"
