"""Triton's client, unmodified, a real frontend, real nodes and a real Redis."""

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import cv2
import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult, aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from support.models import MODELS, v2_pair
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node
from support.wait import wait_until

PAIR, TEXT, IMAGE, WHOLE = "v2_pair", "v2_text", "v2_image", "v2_whole"
MOST_ROWS = 100

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def frontend(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFrontend]:
    home = tmp_path_factory.mktemp("v2")
    with ExitStack() as stack:
        for job in (PAIR, TEXT, IMAGE, WHOLE):
            model = str(MODELS / f"{job}.py")
            batched = {"inputAlreadyBatched": True} if job == WHOLE else {}
            stack.enter_context(
                running_node(home / job, redis_server, modelPath=model, jobName=job, batchSize=16, **batched)
            )
        yield stack.enter_context(running_frontend(home / "frontend", redis_server, maxInstances=MOST_ROWS))


@pytest.fixture
def client(frontend: RunningFrontend) -> Iterator[InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{frontend.port}", concurrency=64) as client:
        yield client


def given(name: str, array: Array, binary: bool = True, datatype: str = "") -> InferInput:
    tensor = triton.InferInput(name, list(array.shape), datatype or np_to_triton_dtype(array.dtype))
    return tensor.set_data_from_numpy(array, binary_data=binary)


def pair(rows: int, binary: bool = True, first: int = 1) -> list[InferInput]:
    """Inputs of the model with two; row n begins with n + `first`."""
    a = np.arange(4, dtype=np.int32) + np.arange(first, first + rows, dtype=np.int32)[:, np.newaxis]
    return [given("a", a, binary), given("b", np.full((rows, 4), 2.5, np.float32), binary)]


def texts(*values: str | bytes) -> Array:
    return np.array(values, object)


def output(result: InferResult, name: str) -> Array:
    found: Array | None = result.as_numpy(name)
    assert found is not None
    return found


def text_of(result: InferResult, name: str) -> list[str]:
    """The elements of an output, which are `bytes` where they came in binary."""
    return [text.decode() if isinstance(text, bytes) else str(text) for text in output(result, name).reshape(-1)]


def error_of(frontend: RunningFrontend, path: str, body: bytes, **headers: str) -> tuple[int, str]:
    """Status and error of a request that is refused."""
    request = urllib.request.Request(f"{frontend.url}{path}", body, headers)  # noqa: S310 - our own http URL
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)  # noqa: S310 - our own http URL
    return refused.value.code, json.loads(refused.value.read())["error"]


def test_the_server_and_its_models_are_live_and_ready(client: InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(PAIR)
    assert client.is_model_ready(PAIR, "1")
    assert not client.is_model_ready("nobody")
    assert not client.is_model_ready(PAIR, "7")


def test_metadata_say_what_server_and_model_are(client: InferenceServerClient) -> None:
    server, model = client.get_server_metadata(), client.get_model_metadata(PAIR)

    assert server["name"] == "cluster-serving"
    assert "binary_tensor_data" in server["extensions"]
    assert model == client.get_model_metadata(PAIR, "1")
    assert (model["name"], model["versions"], model["platform"]) == (PAIR, ["1"], "python")
    assert model["inputs"] == [
        {"name": "a", "datatype": "INT32", "shape": [-1, 4]},
        {"name": "b", "datatype": "FP32", "shape": [-1, 4]},
    ]
    assert [output["datatype"] for output in model["outputs"]] == ["FP32", "FP64", "BOOL", "INT32"]
    assert client.get_model_metadata(TEXT)["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]


def test_configuration_index_and_statistics_are_those_of_the_nodes(client: InferenceServerClient) -> None:
    client.infer(PAIR, pair(3))
    config = client.get_model_config(PAIR)
    index = client.get_model_repository_index()
    [statistics] = client.get_inference_statistics(PAIR)["model_stats"]

    assert config["max_batch_size"] == MOST_ROWS
    assert config["input"][0] == {"name": "a", "data_type": "TYPE_INT32", "dims": [4]}
    assert client.get_model_config(WHOLE)["max_batch_size"] == 0
    assert {(entry["name"], entry["state"]) for entry in index} >= {(PAIR, "READY"), (TEXT, "READY")}
    assert statistics["name"] == PAIR
    assert statistics["inference_stats"]["success"].keys() == {"count", "ns"}
    assert len(client.get_inference_statistics()["model_stats"]) >= 4


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_every_row_is_answered_in_its_place(
    client: InferenceServerClient, binary_in: bool, binary_out: bool | None
) -> None:
    names = ("sum", "difference", "equal", "first")
    asked = None if binary_out is None else [InferRequestedOutput(name, binary_data=binary_out) for name in names]

    result = client.infer(PAIR, pair(20, binary_in), outputs=asked, request_id="my request")

    a = np.arange(4) + np.arange(1, 21)[:, np.newaxis]
    np.testing.assert_array_equal(output(result, "sum"), (a + 2.5).astype(np.float32))
    np.testing.assert_array_equal(output(result, "difference"), a - 2.5)
    np.testing.assert_array_equal(output(result, "first"), np.arange(1, 21))
    assert output(result, "difference").dtype == np.float64
    np.testing.assert_array_equal(output(result, "equal"), np.zeros((20, 4), np.bool_))
    assert output(result, "equal").dtype == np.bool_
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("my request", PAIR, "1")


def test_one_row_without_the_batch_dimension_is_answered_without_it(client: InferenceServerClient) -> None:
    a, b = np.array([1, 2, 3, 4], np.int32), np.zeros(4, np.float32)

    result = client.infer(PAIR, [given("a", a), given("b", b)], model_version="1")

    np.testing.assert_array_equal(output(result, "sum"), a)
    assert output(result, "first").shape == ()


def test_only_the_outputs_asked_for_are_answered_in_this_order(client: InferenceServerClient) -> None:
    asked = [InferRequestedOutput("first", binary_data=False), InferRequestedOutput("sum", binary_data=True)]

    result = client.infer(PAIR, pair(2), outputs=asked)

    assert [output["name"] for output in result.get_response()["outputs"]] == ["first", "sum"]
    assert json.dumps(result.get_output("first")).endswith('"data": [1, 2]}')
    np.testing.assert_array_equal(output(result, "sum")[1], [4.5, 5.5, 6.5, 7.5])


def test_classification_gives_values_and_indices(client: InferenceServerClient) -> None:
    asked = [InferRequestedOutput("sum", class_count=2), InferRequestedOutput("first", False, class_count=9)]

    result = client.infer(PAIR, pair(2), outputs=asked)

    assert output(result, "sum").tolist() == [[b"6.500000:3", b"5.500000:2"], [b"7.500000:3", b"6.500000:2"]]
    assert output(result, "first").tolist() == [["1:0"], ["2:0"]]


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
def test_bodies_may_be_compressed_both_ways(client: InferenceServerClient, compression: str) -> None:
    result = client.infer(
        PAIR, pair(90), request_compression_algorithm=compression, response_compression_algorithm=compression
    )

    assert output(result, "first").tolist() == list(range(1, 91))


def test_other_datatypes_become_the_models_unless_something_is_lost(client: InferenceServerClient) -> None:
    b = np.ones((1, 4), np.float32)

    result = client.infer(PAIR, [given("a", np.full((1, 4), 7, np.uint64)), given("b", b, datatype="BF16")])

    assert output(result, "sum").tolist() == [[8, 8, 8, 8]]
    with pytest.raises(InferenceServerException, match=r"takes int32, and 1.5 of float32 would be lost") as refused:
        client.infer(PAIR, [given("a", np.full((1, 4), 1.5, np.float32)), given("b", b)])
    assert refused.value.status() == "400"


@pytest.mark.parametrize("binary", [True, False])
def test_text_goes_both_ways(client: InferenceServerClient, binary: bool) -> None:
    asked = [InferRequestedOutput(name, binary_data=binary) for name in ("upper", "ends", "length")]

    result = client.infer(TEXT, [given("text", texts("grün", "", "zwei Worte"), binary)], outputs=asked)

    assert text_of(result, "upper") == ["GRÜN", "", "ZWEI WORTE"]
    assert text_of(result, "ends") == ["g", "n", "", "", "z", "e"]
    assert output(result, "ends").shape == (3, 2)
    assert output(result, "length").tolist() == [4, 0, 10]


def png(blue: int) -> bytes:
    ok, encoded = cv2.imencode(".png", np.full((8, 8, 3), (blue, 20, 30), np.uint8))
    assert ok
    return bytes(encoded.tobytes())


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_encoded_images_are_rows(client: InferenceServerClient, shape: tuple[int, ...]) -> None:
    images = texts(png(1), png(2), png(3)).reshape(shape)

    result = client.infer(IMAGE, [given("image", images)])

    assert output(result, "mean").tolist() == [[1, 20, 30], [2, 20, 30], [3, 20, 30]]


def test_pixels_are_taken_as_they_are(client: InferenceServerClient) -> None:
    result = client.infer(IMAGE, [given("image", np.full((2, 3, 8, 8), 9, np.float32))])

    assert output(result, "mean").tolist() == [[9, 9, 9], [9, 9, 9]]


def test_a_batch_that_belongs_together_stays_together(client: InferenceServerClient) -> None:
    x = np.ones((300, 2), np.float32)

    result = client.infer(WHOLE, [given("x", x)])

    np.testing.assert_array_equal(output(result, "y"), np.cumsum(x, axis=0))


def test_64_requests_in_flight_get_each_its_own_answer(client: InferenceServerClient) -> None:
    for begin in (0, 1000):
        under_way = [client.async_infer(PAIR, pair(1 + n % 3, first=begin + n)) for n in range(64)]

        for n, request in enumerate(under_way):
            first = output(request.get_result(), "first")
            assert first.tolist() == list(range(begin + n, begin + n + 1 + n % 3))


def test_the_asyncio_client_is_answered_too(frontend: RunningFrontend) -> None:
    async def run() -> None:
        async with aio.InferenceServerClient(f"127.0.0.1:{frontend.port}") as client:
            assert await client.is_model_ready(PAIR)
            assert (await client.get_model_metadata(PAIR))["name"] == PAIR
            results = await asyncio.gather(*(client.infer(PAIR, pair(90, first=10 * n + 1)) for n in range(8)))
            for n, result in enumerate(results):
                assert output(result, "first").tolist() == list(range(10 * n + 1, 10 * n + 91))

    asyncio.run(run())


def test_a_row_that_fails_fails_its_request_and_is_named(client: InferenceServerClient) -> None:
    a = np.ones((3, 4), np.int32)
    a[1, 0] = v2_pair.RAISES

    with pytest.raises(InferenceServerException, match=r"row 1: ValueError: a row that raises") as failed:
        client.infer(PAIR, [given("a", a), given("b", np.ones((3, 4), np.float32))])
    assert failed.value.status() == "500"


def test_a_broken_image_is_the_clients_fault(client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="row 1: input 'image'") as failed:
        client.infer(IMAGE, [given("image", texts(png(1), b"\xff\xd8\xff no image"))])
    assert failed.value.status() == "400"


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        (
            lambda: pair(2)[:1],
            r"has the inputs 'a' INT32 \[2, 4\]; the model takes 'a' INT32 \[-1, 4\], 'b' FP32 \[-1, 4\]",
        ),
        (lambda: [*pair(2), given("c", np.zeros(1, np.float32))], "has the inputs 'a' .*, 'c' FP32"),
        (lambda: [pair(2)[0], pair(3)[1]], "the same number of rows, and they have: 'a' 2, 'b' 3"),
        (
            lambda: [pair(1)[0], given("b", np.zeros((1, 5), np.float32))],
            r"'b' is FP32 \[1, 5\], .* takes FP32 \[-1, 4\]",
        ),
        (lambda: [pair(1)[0], given("b", np.zeros((0, 4), np.float32))], r"'b' is FP32 \[0, 4\]"),
        (lambda: pair(MOST_ROWS + 1), "101 rows; at most 100 are taken at once"),
    ],
)
def test_wrong_inputs_are_refused_by_name(client: InferenceServerClient, inputs: Any, reason: str) -> None:
    with pytest.raises(InferenceServerException, match=reason) as refused:
        client.infer(PAIR, inputs())
    assert refused.value.status() == "400"


def test_unknown_models_versions_and_outputs_are_named(client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=f"{PAIR}") as unknown:
        client.infer("nobody", pair(1))
    assert unknown.value.status() == "404"
    with pytest.raises(InferenceServerException, match=f"Model Name: {PAIR}, Model Version: 2"):
        client.infer(PAIR, pair(1), model_version="2")
    with pytest.raises(InferenceServerException, match="no output 'product'; the model gives 'sum', ") as refused:
        client.infer(PAIR, pair(1), outputs=[InferRequestedOutput("product")])
    assert refused.value.status() == "400"


def test_what_cannot_be_served_says_so(client: InferenceServerClient) -> None:
    shared = InferInput("a", [1, 4], "INT32")
    shared.set_shared_memory("region", 16)
    for call in (
        lambda: client.load_model(PAIR),
        lambda: client.unload_model(PAIR),
        lambda: client.register_system_shared_memory("region", "/key", 16),
        client.get_cuda_shared_memory_status,
        client.get_trace_settings,
        client.get_log_settings,
    ):
        with pytest.raises(InferenceServerException, match=r"nodes|not supported|there are no") as refused:
            call()
        assert refused.value.status() == "404"
    with pytest.raises(InferenceServerException, match="input 'a' is in shared memory, which is not") as refused:
        client.infer(PAIR, [shared, pair(1)[1]])
    assert refused.value.status() == "400"


def test_the_timeout_of_a_request_is_in_microseconds(client: InferenceServerClient) -> None:
    def late() -> str:
        """Return the status; an empty text for 429, while records of other tests wait by the last look at the queue."""
        with pytest.raises(InferenceServerException) as late:
            client.infer(PAIR, pair(1), timeout=1)
        status = str(late.value.status())
        return "" if status == "429" else status

    assert wait_until(late, "no record waits") == "504"
    assert output(client.infer(PAIR, pair(1), timeout=60_000_000), "first").tolist() == [1]


def test_a_body_without_a_head_is_the_only_input(frontend: RunningFrontend) -> None:
    pixels = np.full((2, 3, 8, 8), 9, np.float32).tobytes()
    path, headers = f"{frontend.url}/v2/models/{IMAGE}/infer", {"Inference-Header-Content-Length": "0"}
    request = urllib.request.Request(path, pixels, headers)  # noqa: S310 - as above
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - as above
        head_bytes = int(response.headers["Inference-Header-Content-Length"])
        result = InferResult.from_response_body(response.read(), header_length=head_bytes)

    assert output(result, "mean").tolist() == [[9, 9, 9], [9, 9, 9]]


def test_a_body_that_unfolds_into_too_much_is_refused(frontend: RunningFrontend) -> None:
    bomb = gzip.compress(bytes(101 << 20), 1)

    status, error = error_of(frontend, f"/v2/models/{PAIR}/infer", bomb, **{"Content-Encoding": "gzip"})

    assert (status, "without its compression" in error) == (413, True)


def test_the_index_reads_its_request(frontend: RunningFrontend) -> None:
    request = urllib.request.Request(f"{frontend.url}/v2/repository/index", b'{"ready": true}')  # noqa: S310 - as above
    with urllib.request.urlopen(request, timeout=20) as response:  # noqa: S310 - as above
        assert {entry["state"] for entry in json.loads(response.read())} == {"READY"}

    assert error_of(frontend, "/v2/repository/index", b"{")[0] == 400
    assert error_of(frontend, "/v2/repository/index", b"[]") == (400, "the request is not a JSON object")


def test_bodies_that_are_no_requests_are_refused(frontend: RunningFrontend) -> None:
    path = f"/v2/models/{PAIR}/infer"

    assert error_of(frontend, path, b"{}")[0] == 400
    assert error_of(frontend, path, b"{}", **{"Inference-Header-Content-Length": "7"})[0] == 400
    assert error_of(frontend, path, b"{}", **{"Content-Encoding": "br"})[0] == 415
