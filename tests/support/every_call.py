"""Program: every call of a client of the model affine.py, and where Cluster Serving was imported from. Any release runs it.

Arguments: URL of Redis, job. It prints JSON: the folder, and for each call whether all values were right, or the error.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cluster_serving
from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, InputQueue, OutputQueue

COUNT, TIMEOUT_S = 100, 10.0


def row(number: float) -> dict[str, Any]:
    """Inputs of a record."""
    return {"x": np.full(4, number, np.float32)}


def right(answer: Any, number: float) -> bool:
    """Return whether an answer is the model's for the row of a number."""
    y, total = answer
    return bool((y == 2 * number + 1).all() and total == 4 * number)


def told(call: Callable[[], bool]) -> Any:
    """Return what a call returns, or its error in words."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def main() -> None:
    """Call, and print what came of it."""
    address: dict[str, Any] = {"url": sys.argv[1], "name": sys.argv[2]}
    with InputQueue(**address) as queue, OutputQueue(**address) as output:

        def predict() -> bool:
            return all(right(queue.predict(row(number), TIMEOUT_S), number) for number in range(10))

        def predict_many() -> bool:
            answers = list(queue.predict_many(map(row, range(COUNT)), TIMEOUT_S))
            return len(answers) == COUNT and all(map(right, answers, range(COUNT)))

        def as_completed() -> bool:
            found = queue.as_completed(((str(number), row(number)) for number in range(COUNT)), TIMEOUT_S)
            return [right(result.value, int(result.uri)) for result in found] == COUNT * [True]

        def query() -> bool:
            queue.enqueue("asked", **row(3))
            end_s = time.monotonic() + TIMEOUT_S
            while isinstance(answer := output.query("asked"), str) and time.monotonic() < end_s:
                time.sleep(0.01)
            return right(answer, 3)

        def dequeue() -> bool:
            output.dequeue()
            queue.enqueue("taken", **row(4))
            end_s = time.monotonic() + TIMEOUT_S
            found: dict[str, Any] = {}
            while not found and time.monotonic() < end_s:
                found = output.dequeue()
            return right(found["taken"], 4)

        def results() -> bool:
            queue.enqueue_many((f"r{number}", row(number)) for number in range(5))
            found = {}
            for result in output.results(TIMEOUT_S):
                found[result.uri] = result
                if len(found) == 5:
                    break
            return all(right(found[f"r{number}"].value, number) and found[f"r{number}"].stages for number in range(5))

        calls = (predict, predict_many, as_completed, query, dequeue, results)
        report = {call.__name__: told(call) for call in calls}
    report["asyncio"] = told(lambda: asyncio.run(in_asyncio(address)))
    print(json.dumps({"folder": next(iter(cluster_serving.__path__)), "calls": report}))


async def in_asyncio(address: dict[str, Any]) -> bool:
    """Return whether the calls of the queues for asyncio are right."""
    async with AsyncInputQueue(**address) as queue, AsyncOutputQueue(**address) as output:
        many = await asyncio.gather(*(queue.predict(row(number), TIMEOUT_S) for number in range(COUNT)))
        more = [answer async for answer in queue.predict_many(map(row, range(COUNT)), TIMEOUT_S)]
        await queue.enqueue("asynchronous", **row(5))
        last = None
        async for result in output.results(TIMEOUT_S):
            last = result.value
            break
        return all(map(right, [*many, *more, last], [*range(COUNT), *range(COUNT), 5]))


if __name__ == "__main__":
    main()
