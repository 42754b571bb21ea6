"""Right calls of the client, as programs write them: type checkers flag none, and find these types."""

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any, Literal, assert_type

import numpy as np

from cluster_serving.client import (
    Answer,
    AsyncInputQueue,
    AsyncOutputQueue,
    Failed,
    InputQueue,
    OutputQueue,
    RecordFailed,
    Result,
)

ROW = np.zeros(3, np.float32)
PASSWORD = os.environ["REDIS_PASSWORD"]
TLS = InputQueue(
    host="redis",
    port=6380,
    name="job",
    username="user",
    password=PASSWORD,
    ssl=True,
    ssl_ca_certs="ca.pem",
    timeout_s=2,
    patience_s=1,
    deadline_s=10,
    compress="lz4",
)
ORIGINAL = InputQueue(url="redis://redis:6379/1", dialect="original", sync=True)
SENTINELS = AsyncInputQueue(url="redis+sentinel://one:26379,two:26379/mymaster", sentinel_password=PASSWORD, db=2)
HTTP = InputQueue("http://frontend:10020")


def send(queue: InputQueue) -> None:
    assert_type(queue.enqueue("a", x=ROW, n=1, words=["a", "b"], photo=Path("cat.jpg"), other={"b64": "AA=="}), str)
    assert_type(queue.enqueue_many([("a", {"x": ROW}), ("b", {"x": ROW})]), int)
    assert_type(queue.predict({"x": ROW}, timeout=2.5), Answer)
    assert_type(queue.predict('{"instances": [{"x": [1.0]}]}'), Answer)
    print(queue.predict(ROW).argmax())
    assert_type(queue.predict_many({"x": row} for row in [ROW, ROW]), Generator[Answer | RecordFailed])
    for answer in queue.predict_many([ROW], window=64):
        print(answer.reason if isinstance(answer, RecordFailed) else answer.argmax())
    assert_type(queue.as_completed([("a", {"x": ROW})]), Generator[Result])
    for result in queue.as_completed([("a", {"x": ROW})]):
        print(result.uri, result.error or result.value, result.stages)


def take(output: OutputQueue) -> None:
    answer = output.query("a", delete=True)
    assert_type(answer, Answer | Failed | Literal["[]"])
    if isinstance(answer, Failed):
        print(answer.code, answer.reason)
    elif not isinstance(answer, str):
        print(answer.argmax())
    assert_type(output.dequeue(), dict[str, Answer | Failed])
    assert_type(output.results(timeout=1), Generator[Result])


async def send_and_take(queue: AsyncInputQueue, output: AsyncOutputQueue) -> None:
    async with queue, output:
        assert_type(await queue.enqueue("a", x=ROW), str)
        assert_type(await queue.predict({"x": ROW}), Answer)
        assert_type(queue.predict_many([ROW]), AsyncGenerator[Answer | RecordFailed])
        assert_type(queue.as_completed([("a", {"x": ROW})]), AsyncGenerator[Result])
        assert_type(await output.query("a"), Answer | Failed | Literal["[]"])
        assert_type(await output.dequeue(), dict[str, Answer | Failed])
        assert_type(output.results(), AsyncGenerator[Result])


def settings_of_a_program(password: str | None, more: dict[str, Any]) -> InputQueue:
    return InputQueue(password=password, **more)
