"""The original's HTTP API, by a real frontend before real nodes: the whole grammar, uploads, errors, clients."""

import base64
import gzip
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest

from cluster_serving.client import InputQueue, RecordFailed, ResultTimeout, keys, perdict
from cluster_serving.client.http.reply import http_json_to_ndarray, http_response_to_ndarray, parse_prediction
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.programs import program
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node

PIXELS = np.full((4, 5, 3), (10, 20, 30), np.uint8)  # BGR
PNG = cv2.imencode(".png", PIXELS)[1].tobytes()
INSTANCE: dict[str, Any] = {
    "intScalar": 12345,
    "floatScalar": 3.5,
    "stringScalar": "hello, world. hello, arrow.",
    "intTensor": [7756, 9549, 1094, 9808, 4959, 3831, 3926, 6578, 1870, 1741],
    "floatTensor": [0.5, 0.25, 0.125, 0.5, 0.25, 0.5, 0.25, 0.5, 0.5, 0.625],
    "stringTensor": ["come", "on", "united"],
    "intTensor2": [[1, 2], [3, 4], [5, 6]],
    "floatTensor2": [[[0.25, 0.5], [0.5, 0.75]], [[0.25, 0.5], [0.5, 0.75]]],
    "stringTensor2": [[[["come", "on"], ["uni", "ted"]]]],
    "sparseTensor": {
        "shape": [100, 1000],
        "data": [0.5, 0.25, 3.5, 6.75],
        "indices": [[1, 1], [2, 2], [3, 3], [4, 4]],
    },
    "image": base64.b64encode(PNG).decode(),
}
SUMS = [12345, 3.5, 51112, 4, 21, 4, 6.75]
SAID = ["hello, world. hello, arrow.", "come on united", "come on uni ted"]


class Reply(NamedTuple):
    """Answer of the frontend; status and text are named as in requests and httpx."""

    status_code: int
    text: str
    content_type: str

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)

    @property
    def error(self) -> str:
        """The one thing that an error says."""
        return str(self.json["error"])

    @property
    def values(self) -> list[Any]:
        """Every prediction."""
        return [parse_prediction(each) for each in self.json["predictions"]]


class Site(NamedTuple):
    """A frontend, and the Redis behind it."""

    frontend: RunningFrontend
    redis: PrivateRedis

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        """POST bytes, or JSON of anything else."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.send(urllib.request.Request(self.frontend.url + path, content, _named(headers)))  # noqa: S310

    def get(self, path: str) -> Reply:
        """GET."""
        return self.send(urllib.request.Request(self.frontend.url + path))  # noqa: S310 - our own http URL

    def send(self, request: urllib.request.Request) -> Reply:
        """The reply, whatever its status."""
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 - our own http URL
                return Reply(reply.status, reply.read().decode(), reply.headers["Content-Type"])
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.read().decode(), error.headers["Content-Type"])


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, redis_server: PrivateRedis) -> Iterator[Site]:
    """A frontend before four jobs: `serving_stream`, which takes everything, `affine`, `slow`, and `best`, with a filter."""
    home = tmp_path_factory.mktemp("site")
    jobs: dict[str, dict[str, Any]] = {
        keys.DEFAULT_JOB: {"modelPath": "everything.py"},
        "affine": {"modelPath": "affine.py"},
        "slow": {"modelPath": "slow.py"},
        "best": {"modelPath": "fixed.py", "postProcessing": "topN(2)"},
    }
    with ExitStack() as stack:
        for job, config in jobs.items():
            (home / job).mkdir()
            path = shutil.copy(MODELS / config.pop("modelPath"), home / job)
            stack.enter_context(
                running_node(home / job, redis_server, jobName=job, modelPath=str(path), slotBytes="8m", **config)
            )
        yield Site(
            stack.enter_context(running_frontend(home / "frontend", redis_server, maxInstances=20)), redis_server
        )


def test_the_welcome_line(site: Site) -> None:
    assert site.get("/").text == "welcome to analytics zoo web serving frontend"
    assert site.post("/", b"").status_code == 200


def check_everything(value: Any) -> None:
    sums, said, pixel = value
    assert sums.tolist() == SUMS
    assert said == SAID
    assert pixel.tolist() == [10, 20, 30]


@pytest.mark.parametrize("path", ["/predict", f"/predict/{keys.DEFAULT_JOB}"])
def test_every_kind_of_value_in_one_instance(site: Site, path: str) -> None:
    reply = site.post(path, {"instances": [INSTANCE]})

    assert (reply.status_code, reply.content_type) == (200, "application/json")
    check_everything(reply.values[0])


def test_the_same_by_curl_which_says_that_it_is_a_form(site: Site, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"instances": [INSTANCE]}))
    curl = subprocess.run(
        [program("curl"), "-s", "-d", f"@{body}", "-X", "POST", f"{site.frontend.url}/predict"],
        check=True,
        capture_output=True,
    )

    check_everything(parse_prediction(json.loads(curl.stdout)["predictions"][0]))


def test_several_instances_are_answered_in_order(site: Site) -> None:
    instances = [{"x": [number, 0, 0, 0]} for number in range(20)]

    values = site.post("/predict/affine", {"instances": instances}).values

    assert [y[0] for y, _ in values] == [2 * number + 1 for number in range(20)]


def test_other_names_bind_by_position(site: Site) -> None:
    y, total = site.post("/predict/affine", {"instances": [{"t": [1, 2, 3, 4]}]}).values[0]

    assert y.tolist() == [3, 5, 7, 9]
    assert total.tolist() == 10


def test_a_batch_in_one_instance_is_answered_as_one(site: Site) -> None:
    y, total = site.post("/predict/affine", {"instances": [{"x": [[1, 2, 3, 4], [0, 0, 0, 0]]}]}).values[0]

    assert y.tolist() == [[3, 5, 7, 9], [1, 1, 1, 1]]
    assert total.tolist() == [10, 0]


def test_an_image_and_a_tensor_through_a_filter(site: Site) -> None:
    grey = base64.b64encode(cv2.imencode(".png", np.full((8, 8), 5, np.uint8))[1].tobytes()).decode()

    reply = site.post("/predict/best", {"instances": [{"image": grey, "bias": [1, 3, 2]}]})

    assert reply.json["predictions"] == ['{"value":"[[1,8.0],[2,7.0]]"}']


def test_records_that_fail_among_others_are_named(site: Site) -> None:
    reply = site.post("/predict/affine", {"instances": [{"x": [1, 0, 0, 0]}, {"x": [-1, 0, 0, 0]}]})

    assert reply.status_code == 200
    assert reply.json["predictions"][1] == '{"value":"NaN"}'
    assert reply.values[0][0].tolist() == [3, 1, 1, 1]
    (error,) = reply.json["errors"]
    assert (error["index"], error["code"]) == (1, "InferenceFailed")
    assert "a row that raises" in error["message"]


def test_when_all_records_fail_the_first_error_is_the_answer(site: Site) -> None:
    reply = site.post("/predict/affine", {"instances": [{"x": [-1, 0, 0, 0]}] * 2})

    assert reply.status_code == 500
    assert "a row that raises" in reply.error
    assert [error["index"] for error in reply.json["errors"]] == [0, 1]


def test_what_only_the_node_can_find_wrong_is_the_clients_fault_too(site: Site) -> None:
    reply = site.post("/predict", {"instances": [INSTANCE | {"image": base64.b64encode(PNG[:20]).decode()}]})

    assert reply.status_code == 400
    assert reply.error.startswith("Wrong content format.\nDetails: instances[0]: input 'image': ")


@pytest.mark.parametrize("ask", [("?timeout=0.2", {}), ("", {"X_Request_Timeout": "0.2"})])
def test_a_request_takes_no_longer_than_it_may(site: Site, ask: tuple[str, dict[str, str]]) -> None:
    query, headers = ask

    reply = site.post(f"/predict/slow{query}", {"instances": [{"x": [1.5, 0]}]}, **headers)

    assert reply.status_code == 504


@pytest.mark.parametrize(
    ("body", "details"),
    [
        (b'{"instances": [', "the body is not JSON: "),
        (b"", "the body is empty, and not JSON"),
        (b'{"instances": [{"x": NaN}]}', "the body is not JSON: "),
        (b"[" * 100_000, "the body is not JSON: "),
        (b"\xff\xfe", "the body is not JSON: "),
        ({"inputs": []}, "no instance can be found, please check your input or json(keyword should be 'instances')"),
        ({"instances": []}, "no instance can be found, please check your input or json(keyword should be 'instances')"),
        ({"instances": {"x": 1}}, "no instance can be found, please check"),
        ([1, 2], "no instance can be found, please check"),
        (
            {"instances": [{"x": 1}], "callback": "https://a"},
            "callback is not read from the body: give it as the header",
        ),
        ({"instances": [5]}, "instances[0]: it is not a JSON object that has a value for each input: x float32 [N,4]"),
        (
            {"instances": [{"x": [1, 2, 3, 4]}] * 21},
            "the request has 21 instances; at most 20 are taken (maxInstances)",
        ),
        (
            {"instances": [{"x": [1, 2, 3, 4]}, {"x": [1, 2, 3]}]},
            "instances[1]: input 'x' takes float32 [4] a record, not float32 [3]",
        ),
        (
            {"instances": [{"x": [1, 2, 3, 4], "z": 1}]},
            "instances[0]: the record's inputs are 'x', 'z'; the model takes x float32 [N,4]",
        ),
        ({"instances": [{"x": [1, 2, None, 4]}]}, "instances[0]: input 'x' holds null among numbers"),
    ],
)
def test_bad_bodies_are_refused_with_the_reason(site: Site, body: Any, details: str) -> None:
    reply = site.post("/predict/affine", body)

    assert (reply.status_code, reply.content_type) == (400, "application/json")
    assert reply.error.startswith(f"Wrong content format.\nDetails: {details}")


@pytest.mark.parametrize(
    "path", ["/predict/nobody", "/models/nobody/predict", "/models/nobody", "/models/affine/versions/9"]
)
def test_an_unknown_job_is_404_and_those_there_are_are_named(site: Site, path: str) -> None:
    reply = site.get(path) if "predict" not in path else site.post(path, {"instances": [{"x": [1, 2, 3, 4]}]})

    assert reply.status_code == 404
    assert "affine" in reply.error
    assert reply.error.startswith("Model Not Found. Err: ") == path.startswith("/models")


def test_predict_wants_post(site: Site) -> None:
    assert site.get("/predict").status_code == 405
    assert site.get("/nothing/here").status_code == 404


def multipart(*parts: tuple[str, str, bytes]) -> tuple[bytes, dict[str, str]]:
    """Body and headers of parts of (further words of the disposition, type, content)."""
    chunks = [
        f"--bound\r\nContent-Disposition: form-data; {words}\r\nContent-Type: {kind}\r\n\r\n".encode()
        + content
        + b"\r\n"
        for words, kind, content in parts
    ]
    return b"".join([*chunks, b"--bound--\r\n"]), {"Content_Type": "multipart/form-data; boundary=bound"}


def grey(value: int) -> bytes:
    return bytes(cv2.imencode(".png", np.full((8, 8), value, np.uint8))[1].tobytes())


def test_a_form_of_an_image_and_a_tensor(site: Site, tmp_path: Path) -> None:
    (tmp_path / "grey.png").write_bytes(grey(5))
    form = ["-F", f"image=@{tmp_path}/grey.png", "-F", "bias=[1, 3, 2]"]
    command = [program("curl"), "-s", *form, f"{site.frontend.url}/predict/best"]
    curl = subprocess.run(command, check=True, capture_output=True)

    assert json.loads(curl.stdout) == {"predictions": ['{"value":"[[1,8.0],[2,7.0]]"}']}


def test_files_of_one_name_are_several_instances(site: Site) -> None:
    body, headers = multipart(
        ('name="image"; filename="a"', "image/png", grey(5)),
        ('name="image"; filename="b"', "image/png", grey(6)),
        ('name="bias"; filename="c"', "application/json", b"[1, 0, 0]"),
        ('name="bias"', "text/plain", b"[0, 0, 3]"),
    )

    reply = site.post("/predict/best", body, **headers)

    assert reply.values == [[[0, 6.0], [1, 5.0]], [[2, 9.0], [0, 6.0]]]


@pytest.mark.parametrize("path", ["/predict/affine", "/models/affine/predict", "/v1/models/affine:predict"])
def test_a_body_may_be_compressed(site: Site, path: str) -> None:
    body = json.dumps({"instances": [{"x": [1, 2, 3, 4]}]}).encode()

    assert site.post(path, gzip.compress(body), Content_Encoding="gzip") == site.post(path, body)


def test_a_large_body_is_answered_as_a_small_one(site: Site) -> None:
    body = json.dumps({"instances": [{"x": [1, 2, 3, 4]}]}).encode()

    assert site.post("/predict/affine", body + b" " * (2 << 20)) == site.post("/predict/affine", body)
    assert "the body is not JSON" in site.post("/predict/affine", b"x" * (2 << 20)).error


def test_a_form_of_everything(site: Site) -> None:
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in INSTANCE.items()}
    del values["image"]
    parts = [(f'name="{name}"', "text/plain", value.encode()) for name, value in values.items()]
    body, headers = multipart(*parts, ('name="image"; filename="a.png"', "image/png", PNG))

    check_everything(site.post("/predict", body, **headers).values[0])


@pytest.mark.parametrize(
    ("parts", "details"),
    [
        ([], "the form has no parts with a name"),
        ([('name="image"; filename="a"', "image/png", b"x")], "instances[0]: the record's inputs are 'image'; the model takes"),
        (
            [('name="image"; filename="a"', "image/png", b"x")] * 2 + [('name="bias"', "text/plain", b"[1]")],
            "the form has 2 of 'image', 1 of 'bias'; each instance takes one of every name",
        ),
        ([('name="bias"; filename="a"', "application/json", b"[1")], "the file 'bias' is not JSON"),
        ([('name="bias"', "text/plain; charset=latin-1", b"\xe9")], "input 'bias': this part is text that is not UTF-8"),
        ([('name="bias"', "text/plain", b"hello")], "instances[0]: the record's inputs are 'bias'; the model takes"),
    ],
)  # fmt: skip
def test_broken_forms(site: Site, parts: list[tuple[str, str, bytes]], details: str) -> None:
    body, headers = multipart(*parts)

    reply = site.post("/predict/best", body, **headers)

    assert reply.status_code == 400
    assert reply.error.startswith(f"Wrong content format.\nDetails: {details}")


def test_files_for_inputs_of_text_are_text(site: Site) -> None:
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in INSTANCE.items()}
    files = [
        (f'name="{name}"; filename="{name}.txt"', "text/plain", values.pop(name).encode())
        for name in list(values)
        if "string" in name
    ]
    sparse = ('name="sparseTensor"; filename="s.json"', "application/json", values.pop("sparseTensor").encode())
    fields = [(f'name="{name}"', "text/plain", value.encode()) for name, value in values.items()]
    body, headers = multipart(*files, sparse, *fields)

    check_everything(site.post("/predict", body, **headers).values[0])


@pytest.mark.parametrize("words", ["", "; boundary=", '; boundary=""'])
def test_a_form_without_boundary(site: Site, words: str) -> None:
    reply = site.post("/predict/best", b"--", Content_Type=f"multipart/form-data{words}")

    assert reply.status_code == 400
    assert "has no boundary" in reply.error


def test_a_form_of_too_many_parts(site: Site) -> None:
    body, headers = multipart(*[('name="bias"', "text/plain", b"1")] * 16_385)

    reply = site.post("/predict/best", body, **headers)

    assert reply.status_code == 400
    assert "at most 16384 parts" in reply.error


def test_an_image_alone_is_for_a_model_of_one_input(site: Site) -> None:
    reply = site.post("/predict/best", grey(1), Content_Type="image/png")

    assert reply.status_code == 400
    assert "the record's inputs are 'image'; the model takes image float32 [4,1,8,8], bias float32 [4,3]" in reply.error
    assert "is empty" in site.post("/predict/best", b"", Content_Type="image/png").error


def test_other_bytes_are_not_read(site: Site) -> None:
    reply = site.post("/predict/affine", b"1234", Content_Type="application/octet-stream")

    assert reply.status_code == 415
    assert "multipart/form-data" in reply.error


def test_models_say_what_they_take_and_give(site: Site) -> None:
    found = {each["modelName"]: each for each in site.get("/models").json}

    assert set(found) == {keys.DEFAULT_JOB, "affine", "slow", "best"}
    assert site.get("/models/affine").json == [found["affine"]]
    assert site.get("/models/affine/versions/1").json == found["affine"]
    assert found["affine"] | {"nodes": []} == {
        "modelName": "affine",
        "modelVersion": "1",
        "job": "affine",
        "state": "ready",
        "backend": "python",
        "nodes": [],
        "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 4]}],
        "outputs": [
            {"name": "y", "dtype": "float32", "shape": [None, 4]},
            {"name": "total", "dtype": "float64", "shape": [None]},
        ],
    }
    (node,) = found["affine"]["nodes"]
    assert node["state"] == "ready"


@pytest.mark.parametrize("path", ["/models/affine/predict", "/models/affine/versions/1/predict"])
def test_predictions_by_name_and_version(site: Site, path: str) -> None:
    y, _ = site.post(path, {"instances": [{"x": [1, 2, 3, 4]}]}).values[0]

    assert y.tolist() == [3, 5, 7, 9]


@pytest.mark.parametrize(
    ("body", "secret"),
    [
        (b"secret=abc&salt=salty", "abc"),
        (b"salt=salty&secret=abc", "abc"),
        (b"secret=a%26b%3D&salt=salty\n", "a&b="),
        (b"secret=a+b==&salt=salty", "a+b=="),
    ],
)
def test_what_opens_models_goes_into_redis(site: Site, body: bytes, secret: str) -> None:
    reply = site.post("/model-secure", body)

    assert (reply.status_code, reply.text) == (200, "model secured secrect and salt succeed to put in redis")
    with site.redis.client() as client:
        assert client.hgetall(keys.MODEL_SECURED) == {b"secret": secret.encode(), b"salt": b"salty"}
        client.delete(keys.MODEL_SECURED)
    assert secret not in site.frontend.log


@pytest.mark.parametrize("body", [b"", b"secret=a", b"salt=a", b"secret=&salt=b", b"\xff", b"secret=%ff&salt=a"])
def test_what_opens_models_is_two_values(site: Site, body: bytes) -> None:
    reply = site.post("/model-secure", body)

    assert reply.status_code == 400
    assert reply.error.endswith("please post a content like secret=xxx&salt=xxxx")


def test_a_hash_that_is_none_is_said(site: Site) -> None:
    with site.redis.client() as client:
        client.set(keys.MODEL_SECURED, "text")
        reply = site.post("/model-secure", b"secret=abcde&salt=salty")
        client.delete(keys.MODEL_SECURED)

    assert reply.status_code == 500
    assert reply.error == "model secured secrect and salt failed to put in redis"


def test_our_client(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    queue = InputQueue(frontend_url=site.frontend.url, sync=True)

    check_everything(queue.predict(json.dumps({"instances": [INSTANCE]}), timeout=60))
    check_everything(perdict(site.frontend.url, json.dumps({"instances": [INSTANCE]})))
    assert "Attempt connecting to Cluster Serving frontend success" in capsys.readouterr().out
    with pytest.raises(RecordFailed, match="no instance can be found"):
        queue.predict({"instances": []}, timeout=60)


def test_the_helpers_of_the_original(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"instances": [{"x": [[0.5, 1], [2, 3]]}]}

    reply = site.post("/predict/slow", {"instances": [{"x": [0, 1.5]}]})

    assert np.array_equal(http_response_to_ndarray(reply), [0, 1.5])
    assert np.array_equal(http_json_to_ndarray(reply.text), [0, 1.5])
    value = json.loads(json.loads(json.loads(reply.text)["predictions"][0])["value"])  # as theirs do it
    assert np.array(value["data"]).reshape(value["shape"]).tolist() == [0, 1.5]
    assert http_response_to_ndarray(site.post("/predict", body)) == "[]"
    assert "Invalid input format" in capsys.readouterr().out


def test_our_client_waits_no_longer_than_it_is_told(site: Site, tmp_path: Path) -> None:
    with running_frontend(tmp_path, site.redis, jobName="slow") as frontend:
        queue = InputQueue(frontend_url=frontend.url)

        with pytest.raises(ResultTimeout):
            queue.predict({"instances": [{"x": [1.5, 0]}]}, timeout=0.2)


def test_model_secure_can_be_switched_off(site: Site, tmp_path: Path) -> None:
    with running_frontend(tmp_path, site.redis, modelSecureEnabled=False) as frontend:
        reply = Site(frontend, site.redis).post("/model-secure", b"secret=abc&salt=salty")

    assert reply.status_code == 404
    assert "modelSecureEnabled" in reply.error


SERVABLES = """
modelMetaDataList:
 - !<ClusterServingMetaData>
    modelName: "m1"
    modelVersion: "1.0"
    redisInputQueue: "affine"
"""


def test_names_and_versions_of_servables(site: Site, tmp_path: Path) -> None:
    conf = tmp_path / "servables-conf.yaml"
    conf.write_text(SERVABLES)
    with running_frontend(tmp_path, site.redis, servableManagerConfPath=str(conf)) as frontend:
        own = Site(frontend, site.redis)
        stated = own.get("/models/m1/versions/1.0").json
        y, _ = own.post("/models/m1/versions/1.0/predict", {"instances": [{"x": [1, 2, 3, 4]}]}).values[0]
        unknown = own.post("/models/m1/versions/2.0/predict", {"instances": [{"x": [1, 2, 3, 4]}]})

    assert y.tolist() == [3, 5, 7, 9]
    assert (stated["modelName"], stated["modelVersion"], stated["job"]) == ("m1", "1.0", "affine")
    assert (stated["type"], stated["redisInputQueue"]) == ("ClusterServingMetaData", "affine")
    assert stated["redisTrustStoreToken"] == "*******"
    assert unknown.status_code == 404
    assert "Model Name: m1, Model Version: 2.0" in unknown.error
