"""Wrong calls of the client: mypy and pyright flag each line, with the error that stands behind it, and no further line."""

import numpy as np

from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, InputQueue, OutputQueue

ROW = np.zeros(3, np.float32)

InputQueue(hots="redis")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
InputQueue(port=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
InputQueue(timeout_s="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
InputQueue(dialect="orignal")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
AsyncInputQueue(compress="gzip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
InputQueue("redis", 6379)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
AsyncInputQueue("http://frontend:10020")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OutputQueue("redis:6379")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
OutputQueue(patience_s=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
AsyncOutputQueue(frontend_url="http://h")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def send(queue: InputQueue) -> None:
    queue.enqueue(x=ROW)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.enqueue("a", x=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.enqueue("a", {"x": ROW})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    queue.enqueue_many([{"x": ROW}])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    queue.predict({1: ROW})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.predict(ROW, "5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.predict_many(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queue.as_completed([ROW])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    for answer in queue.predict_many([ROW]):
        answer.argmax()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    for result in queue.as_completed([("a", {"x": ROW})]):
        result.argmax()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def take(output: OutputQueue) -> None:
    output.query()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    output.query("a").argmax()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    output.dequeue()["a"].argmax()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
    output.results(timeout=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def send_and_take(queue: AsyncInputQueue, output: AsyncOutputQueue) -> None:
    queue.predict(ROW).argmax()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    for answer in queue.predict_many([ROW]):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        print(answer)
    (await output.query("a")).argmax()  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]
