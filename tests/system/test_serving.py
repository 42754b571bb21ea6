"""A client, a real Redis and a real node."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    ErrorCode,
    Failed,
    InputQueue,
    InvalidValue,
    OutputQueue,
    QueueFull,
    RecordFailed,
    ResultTimeout,
    keys,
)
from cluster_serving.client.wire.result import Result
from support.models import MODELS, affine
from support.private_redis import PrivateRedis
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "affine"


@pytest.fixture(scope="module")
def node(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    with running_node(tmp_path_factory.mktemp("node"), redis_server, modelPath=model, jobName=JOB, batchSize=8) as node:
        yield node


@pytest.fixture
def queue(node: RunningNode, redis_server: PrivateRedis) -> Iterator[InputQueue]:
    with InputQueue(port=redis_server.port, name=JOB) as queue:
        yield queue


@pytest.fixture
def output(node: RunningNode, redis_server: PrivateRedis) -> Iterator[OutputQueue]:
    with OutputQueue(port=redis_server.port, name=JOB) as output:
        yield output


def row(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, np.float32)


def arrived(output: OutputQueue, uri: str) -> Any:
    """The result of a record once it is there."""

    def found() -> list[Any]:
        value = output.query(uri)
        return [] if isinstance(value, str) and value == "[]" else [value]

    return wait_until(found, f"the result of {uri}")[0]


def test_predict_gives_every_output_in_the_models_order(queue: InputQueue) -> None:
    y, total = queue.predict({"x": row(1, 2, 3, 4)}, timeout=60)

    np.testing.assert_array_equal(y, row(3, 5, 7, 9))
    assert y.dtype == np.float32
    assert (total, total.dtype, total.shape) == (10.0, np.float64, ())


def test_answered_records_have_left_the_stream(queue: InputQueue, redis_server: PrivateRedis) -> None:
    """The length of the stream is the number of records that wait or run: an autoscaler may take it."""
    list(queue.predict_many({"x": row(n, 0, 0, 0)} for n in range(20)))

    with redis_server.client() as client:
        assert client.xlen(JOB) == 0


def test_enqueued_results_are_found_under_their_uri(queue: InputQueue, output: OutputQueue) -> None:
    entry = queue.enqueue("a:b c/ü", x=row(0, 0, 0, 1))

    assert "-" in entry
    np.testing.assert_array_equal(arrived(output, "a:b c/ü")[0], row(1, 1, 1, 3))
    assert len(output.query_and_delete("a:b c/ü")) == 2
    assert output.query("a:b c/ü") == "[]"


def test_dequeue_takes_everything_once(queue: InputQueue, output: OutputQueue) -> None:
    uris = {f"d{n}" for n in range(100)}
    assert queue.enqueue_many((uri, {"x": row(1, 1, 1, 1)}) for uri in uris) == 100
    taken: dict[str, Any] = {}

    def all_there() -> bool:
        taken.update(output.dequeue())
        return taken.keys() >= uris

    wait_until(all_there, "all results")
    assert not output.dequeue().keys() & uris


def test_results_come_as_they_are_there(queue: InputQueue, output: OutputQueue) -> None:
    queue.enqueue_many((f"r{n}", {"x": row(n, 0, 0, 0)}) for n in range(20))

    found: dict[str, Result] = {}
    for result in output.results(timeout=60):
        found[result.uri] = result
        if found.keys() >= {f"r{n}" for n in range(20)}:
            break

    assert {f"r{n}" for n in range(20)} <= found.keys()
    assert found["r7"].outputs["y"][0] == 15
    receipt = found["r7"].receipt
    assert receipt is not None
    assert receipt.batch >= 1


def test_predict_many_keeps_the_order_and_goes_on_after_a_bad_record(queue: InputQueue) -> None:
    requests = [{"x": row(n, 0, 0, 0) if n % 10 else row(n)} for n in range(500)]

    answers: list[Any] = list(queue.predict_many(iter(requests), window=64))

    assert len(answers) == 500
    for n, answer in enumerate(answers):
        if n % 10:
            assert answer[0][0] == 2 * n + 1
        else:
            assert isinstance(answer, RecordFailed)
            assert answer.code == ErrorCode.INVALID_INPUT
            assert "takes float32 [4] a record, not float32 [1]" in answer.reason


def test_answers_come_while_a_slow_source_goes_on(queue: InputQueue) -> None:
    asked: list[int] = []
    over = threading.Event()

    def source() -> Iterator[dict[str, Any]]:
        while not over.wait(0.01):
            asked.append(len(asked))
            yield {"x": row(asked[-1], 0, 0, 0)}

    answers = queue.predict_many(source())
    found: list[Any] = [next(answers)]
    over.set()
    found += answers

    assert [answer[0][0] for answer in found] == [2 * n + 1 for n in asked]


def test_a_consumer_that_pauses_longer_than_the_timeout_loses_nothing(queue: InputQueue) -> None:
    answers = queue.predict_many(({"x": row(n, 0, 0, 0)} for n in range(500)), timeout=8)
    next(answers)
    threading.Event().wait(8.1)

    assert len(list(answers)) == 499


def test_a_queue_works_again_after_it_was_closed(queue: InputQueue) -> None:
    for _ in range(2):
        with queue:
            assert queue.predict(row(1, 2, 3, 4), timeout=60)[1] == 10


def test_a_reply_stream_that_was_deleted_is_made_again(
    queue: InputQueue, redis_server: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster_serving.client.protocol.reply_stream._SURE_S", 0.0)
    assert queue.predict(row(1, 2, 3, 4), timeout=60)[1] == 10
    with redis_server.client() as client:
        client.delete(*client.keys(keys.reply_key(JOB, "*")))

    assert queue.predict(row(1, 2, 3, 4), timeout=60)[1] == 10


def test_as_completed_gives_each_record_once(queue: InputQueue) -> None:
    results = list(queue.as_completed(((f"c{n}", {"x": row(n, 0, 0, 0)}) for n in range(300)), window=50))

    assert sorted(result.uri for result in results) == sorted(f"c{n}" for n in range(300))
    assert all(result.outputs["y"][0] == 2 * int(result.uri[1:]) + 1 for result in results)


def test_threads_share_one_queue(queue: InputQueue) -> None:
    answers: dict[int, float] = {}

    def work(first: int) -> None:
        for n in range(first, first + 25):
            answers[n] = queue.predict({"x": row(n, 0, 0, 0)}, timeout=20)[0][0]

    threads = [threading.Thread(target=work, args=(25 * t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == {n: 2 * n + 1 for n in range(200)}


def test_asyncio_calls_share_one_connection(node: RunningNode, redis_server: PrivateRedis) -> None:
    async def run() -> None:
        async with (
            AsyncInputQueue(port=redis_server.port, name=JOB) as queue,
            AsyncOutputQueue(port=redis_server.port, name=JOB) as output,
        ):
            answers = await asyncio.gather(*(queue.predict({"x": row(n, 0, 0, 0)}, timeout=60) for n in range(200)))
            assert [answer[0][0] for answer in answers] == [2 * n + 1 for n in range(200)]
            with pytest.raises(RecordFailed, match="InvalidInput"):
                await queue.predict({"x": row(1)}, timeout=60)
            many: list[Any] = [
                a async for a in queue.predict_many(({"x": row(n, 0, 0, 0)} for n in range(100)), window=10)
            ]
            assert [answer[0][0] for answer in many] == [2 * n + 1 for n in range(100)]
            done = [r.uri async for r in queue.as_completed((f"as{n}", {"x": row(1, 1, 1, 1)}) for n in range(40))]
            assert sorted(done) == sorted(f"as{n}" for n in range(40))
            assert await queue.enqueue_many((f"e{n}", {"x": row(1, 1, 1, 1)}) for n in range(100)) == 100
            found: set[str] = set()
            async for result in output.results(timeout=60):
                found.add(result.uri)
                if found >= {f"e{n}" for n in range(100)}:
                    break
            assert {f"e{n}" for n in range(100)} <= found
            await output.dequeue()  # what other tests have left
            await queue.enqueue("one", x=row(1, 1, 1, 1))
            async with asyncio.timeout(20):
                while isinstance(await output.query("one"), str):
                    await asyncio.sleep(0.01)
            assert len(await output.query_and_delete("one")) == 2
            assert await output.dequeue() == {}

    asyncio.run(run())


def test_a_batch_dimension_of_one_is_kept(queue: InputQueue) -> None:
    y, total = queue.predict({"x": row(1, 2, 3, 4)[np.newaxis]}, timeout=60)

    assert (y.shape, total.shape) == ((1, 4), (1,))


def test_any_input_name_binds_by_position(queue: InputQueue) -> None:
    assert queue.predict(row(1, 2, 3, 4), timeout=60)[1] == 10


def test_other_dtypes_become_the_models_unless_something_is_lost(queue: InputQueue) -> None:
    assert queue.predict({"x": np.array([1, 2, 3, 4])}, timeout=60)[1] == 10
    assert queue.predict({"x": [1.5, 2.0, 3.0, 4.0]}, timeout=60)[1] == 10.5
    assert queue.predict({"x": np.array([True, False, True, True])}, timeout=60)[1] == 3

    with pytest.raises(RecordFailed, match="16777217 of int64 would be lost"):
        queue.predict({"x": np.array([16777217, 0, 0, 0])}, timeout=60)


def test_a_sparse_tensor_is_made_dense(queue: InputQueue) -> None:
    y, total = queue.predict({"x": [np.array([[1, 3]]), np.array([5.0, 7.0]), np.array([4])]}, timeout=60)

    np.testing.assert_array_equal(y, row(1, 11, 1, 15))
    assert total == 12


def test_json_text_is_taken_as_the_original_took_it(queue: InputQueue) -> None:
    assert queue.predict('{"instances": [{"x": [1, 2, 3, 4]}]}', timeout=60)[1] == 10


def test_one_record_that_raises_leaves_its_neighbours_alone(queue: InputQueue) -> None:
    requests = [{"x": row(affine.RAISES if n == 37 else n, 0, 0, 0)} for n in range(64)]

    answers: list[Any] = list(queue.predict_many(requests))

    failed = [n for n, answer in enumerate(answers) if isinstance(answer, RecordFailed)]
    assert failed == [37]
    assert str(answers[37]).endswith("ValueError: a row that raises (InferenceFailed)")
    assert all(answers[n][0][0] == 2 * n + 1 for n in range(64) if n != 37)


def test_a_record_that_kills_the_worker_is_found_and_the_others_succeed(queue: InputQueue, node: RunningNode) -> None:
    requests = [{"x": row(affine.KILLS if n == 5 else n, 0, 0, 0)} for n in range(16)]

    answers: list[Any] = list(queue.predict_many(requests, timeout=90))

    failed = {n: answer for n, answer in enumerate(answers) if isinstance(answer, RecordFailed)}
    assert failed.keys() == {5}
    assert failed[5].code == ErrorCode.WORKER_DIED
    assert all(answers[n][0][0] == 2 * n + 1 for n in range(16) if n != 5)


def test_text_images_and_missing_inputs_are_refused_by_name(queue: InputQueue) -> None:
    with pytest.raises(RecordFailed, match=r"input 'x' takes float32 \[N,4\], not text"):
        queue.predict({"x": ["some", "text"]}, timeout=60)
    with pytest.raises(RecordFailed, match=r"the input x float32 .* takes no image"):
        queue.predict({"x": b"\xff\xd8\xff no image"}, timeout=60)
    with pytest.raises(RecordFailed, match="the record's inputs are 'x', 'z'; the model takes x float32"):
        queue.predict({"x": row(1, 2, 3, 4), "z": row(1)}, timeout=60)
    with pytest.raises(InvalidValue, match="has no inputs"):
        queue.predict({}, timeout=60)


def test_a_failed_record_reads_as_nan_with_a_reason(queue: InputQueue, output: OutputQueue) -> None:
    queue.enqueue("bad", x=row(1))

    failed = arrived(output, "bad")

    assert isinstance(failed, Failed)
    assert str(failed) == "NaN"
    assert failed.code == ErrorCode.INVALID_INPUT
    assert "takes float32 [4]" in failed.reason


def test_entries_no_client_of_ours_would_write_are_answered(
    node: RunningNode, redis_server: PrivateRedis, output: OutputQueue
) -> None:
    with redis_server.client() as client:
        no_uri = client.xadd(JOB, {"something": "else"})
        client.xadd(JOB, {"uri": "empty", "tensor:x": b""})
        client.xadd(JOB, {"uri": "steal", "tensor:x": b"", "reply": "other_key"})
        client.xadd(JOB, {"uri": "late", "tensor:x": b"", "deadline": "1000"})
        client.xadd(JOB, {"uri": "when", "tensor:x": b"", "deadline": "soon"})

    assert "uri has 0 bytes" in arrived(output, no_uri.decode()).reason
    assert "not a tensor message" in arrived(output, "empty").reason
    assert "the reply stream must begin with" in arrived(output, "steal").reason
    assert arrived(output, "late").code == ErrorCode.DEADLINE_EXCEEDED
    assert arrived(output, "when").code == ErrorCode.INVALID_INPUT


def test_the_original_dialect_is_answered_in_kind(
    node: RunningNode, redis_server: PrivateRedis, output: OutputQueue
) -> None:
    with InputQueue(port=redis_server.port, name=JOB, dialect="original") as queue:
        assert queue.predict(row(1, 2, 3, 4), timeout=60)[1] == 10
        queue.enqueue("old", t=row(1, 2, 3, 4))
        queue.enqueue("old-bad", t=row(1))

    y, total = arrived(output, "old")
    np.testing.assert_array_equal(y, row(3, 5, 7, 9))
    assert total == 10
    with redis_server.client() as client:
        assert set(client.hgetall(keys.result_prefix(JOB) + "old")) == {b"value"}
        bad = keys.result_prefix(JOB) + "old-bad"
        assert wait_until(lambda: client.hget(bad, "value"), "the second record is answered too") == b"NaN"
    assert "takes float32 [4]" in arrived(output, "old-bad").reason


@pytest.mark.usefixtures("patient")
def test_a_full_queue_refuses_and_says_how_many_it_took(redis_server: PrivateRedis) -> None:
    with redis_server.client() as client, InputQueue(port=redis_server.port, name="full", patience_s=0.1) as queue:
        client.hset(keys.limits_key("full"), "maxQueueLength", "100")

        with pytest.raises(QueueFull, match="Redis queue is full, please wait for inference") as caught:
            queue.enqueue_many((f"q{n}", {"x": row(1)}) for n in range(150))

        assert caught.value.accepted == client.xlen("full") == 100


@pytest.mark.usefixtures("patient")
def test_no_node_means_a_timeout_in_time(redis_server: PrivateRedis) -> None:
    with (
        InputQueue(port=redis_server.port, name="nobody") as queue,
        pytest.raises(ResultTimeout, match="no node of job nobody lives"),
    ):
        queue.predict({"x": row(1)}, timeout=0.3)


def test_nothing_is_left_in_redis(node: RunningNode, redis_server: PrivateRedis, output: OutputQueue) -> None:
    output.dequeue()
    with redis_server.client() as client:
        wait_until(lambda: client.xlen(JOB) == 0, "the stream is empty")
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0
        left = set(client.keys(f"*{JOB}*"))

    kept = (JOB, keys.limits_key(JOB), keys.dead_key(JOB), keys.history_key(JOB), keys.slow_key(JOB))
    assert {key for key in left if b"node_" not in key} <= {name.encode() for name in kept}
