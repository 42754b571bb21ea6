"""Names of a record's inputs, by every way in: the model's bind by name, others by order and never silently, slips not at all."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, ErrorCode, InputQueue, OutputQueue, RecordFailed
from support.models import MODELS
from support.private_redis import PrivateRedis, private_redis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

ORDER, NAME = "by_order", "by_name"
A, B, DIFFERENCE = [5.0, 7.0], [1.0, 2.0], [4.0, 5.0]
Names = tuple[str, str]


class Place:
    """A Redis with a frontend and two nodes: one binds by order too, the other by name alone."""

    def __init__(self, server: PrivateRedis, frontend: RunningFrontend, nodes: dict[str, RunningNode]) -> None:
        self.server, self.frontend, self.nodes = server, frontend, nodes

    def post(self, path: str, document: Any) -> Any:
        """The answer of the frontend, or the reason of a refusal."""
        request = urllib.request.Request(f"{self.frontend.url}{path}", json.dumps(document).encode())  # noqa: S310 - our own
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            code = ErrorCode.INVALID_INPUT if error.code == 400 else f"HTTP {error.code}"
            raise RecordFailed(code, str(json.loads(error.read())["error"]), "") from error


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("binding")
    with ExitStack() as stack:
        server = stack.enter_context(private_redis(tmp_path_factory.mktemp("redis")))
        settings = {"modelPath": str(MODELS / "minus.py")}
        nodes = {
            job: stack.enter_context(running_node(home / job, server, jobName=job, bindInputs=setting, **settings))
            for job, setting in ((ORDER, "order"), (NAME, "name"))
        }
        yield Place(server, stack.enter_context(running_frontend(home / "frontend", server)), nodes)


def values(names: Names, first: list[float], second: list[float]) -> dict[str, Any]:
    return {names[0]: np.array(first, np.float32), names[1]: np.array(second, np.float32)}


def by_python(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    with InputQueue(port=place.server.port, name=job) as queue:
        return queue.predict(values(names, first, second), timeout=60)


def by_asyncio(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    async def ask() -> Any:
        async with AsyncInputQueue(port=place.server.port, name=job) as queue:
            return await queue.predict(values(names, first, second), timeout=60)

    return asyncio.run(ask())


def by_the_original(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    with InputQueue(port=place.server.port, name=job, dialect="original") as queue:
        queue.enqueue("arrow", **values(names, first, second))
    return taken(place, job, "arrow")


def by_json_of_the_original(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    document = json.dumps({"instances": [{names[0]: first, names[1]: second}]})
    with place.server.client() as client:
        client.xadd(job, {"uri": "json", "data": document, "serde": "stream"})
    return taken(place, job, "json")


def taken(place: Place, job: str, uri: str) -> Any:
    """The answer to a record of the original dialect."""
    with OutputQueue(port=place.server.port, name=job) as output:
        result = next(output.results(timeout=30))
    assert result.uri == uri
    if result.error:
        raise RecordFailed(*result.error, uri)
    return result.value


def by_predict(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    answer = place.post(f"/predict/{job}", {"instances": [{names[0]: first, names[1]: second}]})
    value = json.loads(json.loads(answer["predictions"][0])["value"])
    return value["data"]


def by_v1(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    row = {"instances": [{names[0]: first, names[1]: second}]}
    column = {"inputs": {names[0]: [first], names[1]: [second]}}
    (found,) = place.post(f"/v1/models/{job}:predict", row)["predictions"]
    assert place.post(f"/v1/models/{job}:predict", column)["outputs"] == [found]
    return found


def by_v2(place: Place, job: str, names: Names, first: list[float], second: list[float]) -> Any:
    tensors = [
        {"name": name, "shape": [1, 2], "datatype": "FP32", "data": data}
        for name, data in zip(names, (first, second), strict=True)
    ]
    return place.post(f"/v2/models/{job}/infer", {"inputs": tensors})["outputs"][0]["data"]


Way = Callable[[Place, str, Names, list[float], list[float]], Any]
WAYS: list[Way] = [by_python, by_asyncio, by_the_original, by_json_of_the_original, by_predict, by_v1, by_v2]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("job", [ORDER, NAME])
def test_the_models_names_bind_in_any_order(place: Place, way: Way, job: str) -> None:
    assert list(np.ravel(way(place, job, ("a", "b"), A, B))) == DIFFERENCE
    assert list(np.ravel(way(place, job, ("b", "a"), B, A))) == DIFFERENCE


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [("B", "A"), ("b", "A"), ("b_", "a:0"), ("b", "c"), ("beta", "alpha")])
def test_slips_are_refused_with_the_nearest_name(place: Place, way: Way, names: Names) -> None:
    with pytest.raises(RecordFailed) as caught:
        way(place, ORDER, names, B, A)

    assert caught.value.code == ErrorCode.INVALID_INPUT
    reason = str(caught.value)
    for told in (*map(repr, names), "the model takes", "float32" if way is not by_v2 else "FP32"):
        assert told in reason
    if names != ("b", "c") or way is not by_v2:
        assert "is none of these, and the nearest is" in reason


@pytest.mark.parametrize("way", WAYS[:-1])  # the tensors of v2 have the model's names
@pytest.mark.parametrize("names", [("t0", "t1"), ("first", "second")])
def test_other_names_bind_by_order_or_are_refused(place: Place, way: Way, names: Names) -> None:
    assert list(np.ravel(way(place, ORDER, names, A, B))) == DIFFERENCE

    with pytest.raises(RecordFailed, match="bindInputs is name, and these are not the model's names"):
        way(place, NAME, names, A, B)


def test_the_receipt_and_the_log_and_the_metrics_tell_of_the_order(place: Place) -> None:
    before = place.nodes[ORDER].heartbeat()["bound_by_order"]
    with (
        InputQueue(port=place.server.port, name=ORDER) as queue,
        OutputQueue(port=place.server.port, name=ORDER) as output,
    ):
        requests = [("o", values(("p", "q"), A, B)), ("n", values(("b", "a"), B, A))]
        mixed = [(f"{uri}{number}", data) for number in range(20) for uri, data in requests]
        alike = [mixed[::2], mixed[1::2]]  # decoded together, as the names have been seen
        receipts = {result.uri: result.receipt for each in (mixed, *alike) for result in queue.as_completed(each)}
        for uri, data in requests:
            queue.enqueue(uri, **data)
        taken = {result.uri: result.receipt for result in output.results(timeout=10)}

    for uri, receipt in (receipts | taken).items():
        assert receipt is not None
        assert receipt.bound == ("order" if uri.startswith("o") else "")
    place.post(f"/predict/{ORDER}", {"instances": [{"t0": A, "t1": B}]})
    wait_until(lambda: place.nodes[ORDER].heartbeat()["bound_by_order"] >= before + 42, "the heartbeat counts them")
    assert place.nodes[NAME].heartbeat()["bound_by_order"] == 0
    log = place.nodes[ORDER].log
    assert log.count("inputs are bound by order, because their names are not the model's") == 1
    assert "bound by order" not in place.nodes[NAME].log
    request = urllib.request.Request(f"{place.frontend.url}/metrics", headers={"Accept": "text/plain"})  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        assert f'cluster_serving_records_bound_by_order_total{{job_name="{ORDER}",node=' in response.read().decode()
