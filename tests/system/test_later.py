"""Answers that are fetched later: a real node, real frontends, and the results in Redis between them."""

import base64
import http.client
import json
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from bench.receiver import Receiver, receiver

from cluster_serving.client import keys
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import running_node
from support.wait import wait_until

pytestmark = [pytest.mark.redis, pytest.mark.measured]

JOB = "answers later"
SLOW = "slowly"
ROW = {"instances": [{"x": [1, 2, 3, 4]}]}
COLUMNS = {"inputs": {"x": [[1, 2, 3, 4], [5, 6, 7, 8]]}}
TENSORS = {
    "id": "mine",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [1, 2, 3, 4, 5, 6, 7, 8]}],
    "outputs": [{"name": "y", "parameters": {"binary_data": True}}, {"name": "total"}],
}
LATER = {"Prefer": "respond-async"}
KEY = bytes(range(32))
ALICE, BOB = {"X-API-Key": "key-of-alice"}, {"X-API-Key": "key-of-bob"}


class Reply(NamedTuple):
    """Answer to a call."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


def call(
    frontend: RunningFrontend, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> Reply:
    connection = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), dict(headers or {}))
        response = connection.getresponse()
        return Reply(response.status, dict(response.headers), response.read())
    finally:
        connection.close()


def accepted(frontend: RunningFrontend, path: str, body: Any, headers: Mapping[str, str] = {}) -> str:
    """The place of an answer."""
    reply = call(frontend, "POST", path, body, LATER | dict(headers))
    assert reply.status == 202, reply
    assert reply.headers["Location"] == f"/results/{quote(reply.document['id'], safe='')}"
    return reply.headers["Location"]


def sleep(seconds: float) -> Any:
    """A record for the slow model."""
    return {"instances": [{"x": [seconds, 0]}]}


@pytest.fixture(scope="module")
def home(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nodes of a quick model and of a slow one."""
    home = tmp_path_factory.mktemp("later")
    with (
        running_node(home / "quick", redis_server, modelPath=str(MODELS / "affine.py"), jobName=JOB),
        running_node(home / "slow", redis_server, modelPath=str(MODELS / "slow.py"), jobName=SLOW, batchSize=1),
    ):
        yield home


@pytest.fixture(scope="module")
def hooks() -> Iterator[Receiver]:
    """A receiver of callbacks that takes all."""
    with receiver(KEY) as hooks:
        yield hooks


@pytest.fixture(scope="module")
def frontend(home: Path, redis_server: PrivateRedis, hooks: Receiver) -> Iterator[RunningFrontend]:
    secret = f"whsec_{base64.b64encode(KEY).decode()}"
    exempt = f"127.0.0.1:{hooks.server_port}"
    with running_frontend(
        home / "open", redis_server, jobName=JOB, callbackSecret=secret, callbackHosts=[exempt]
    ) as frontend:
        yield frontend


@pytest.fixture(scope="module")
def guarded(home: Path, redis_server: PrivateRedis) -> Iterator[RunningFrontend]:
    """A frontend that wants API keys, and keeps two calls for each."""
    secrets = home / "keys"
    secrets.write_text("alice:key-of-alice\nbob:key-of-bob\n")
    secrets.chmod(0o600)
    with running_frontend(
        home / "guarded", redis_server, jobName=JOB, apiKeysFile=str(secrets), laterPerKey=2
    ) as frontend:
        yield frontend


V1, V2 = f"/v1/models/{quote(JOB)}", f"/v2/models/{quote(JOB)}/infer"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/predict", ROW),
        ("/predict", {"instances": [{"x": [1, 2, 3, 4]}, {"x": [-1, 0, 0, 0]}]}),
        (f"/models/{quote(JOB)}/predict", {"instances": [{"x": [-1, 0, 0, 0]}]}),
        (f"{V1}:predict", COLUMNS),
        (f"{V1}:predict", {"instances": [[1, 2, 3, 4], [-1, 0, 0, 0]]}),
        (f"{V1}:classify", {"examples": [{"x": [1, 2, 3, 4]}]}),
        (V2, TENSORS),
        (V2, TENSORS | {"outputs": [{"name": "z"}]}),
    ],
)
def test_the_answer_later_is_the_answer_now(frontend: RunningFrontend, path: str, body: Any) -> None:
    now = call(frontend, "POST", path, body)
    place = accepted(frontend, path, body)

    later = call(frontend, "GET", f"{place}?wait=30")

    assert (later.status, later.body) == (now.status, now.body)
    own = {"Date", "Server-Timing", "Keep-Alive"}
    assert {k: v for k, v in later.headers.items() if k not in own} == {
        k: v for k, v in now.headers.items() if k not in own
    }
    assert call(frontend, "GET", place).body == now.body


def test_async_in_the_query_is_as_good_as_the_header(frontend: RunningFrontend) -> None:
    assert call(frontend, "POST", "/predict?async=1", ROW).status == 202
    assert call(frontend, "POST", "/predict?async=0", ROW).status == 200
    assert "async is 1" in call(frontend, "POST", "/predict?async=yes", ROW).document["error"]
    assert call(frontend, "POST", "/predict", {"instances": []}, LATER).status == 400


def test_a_call_waits_runs_and_is_done(frontend: RunningFrontend, redis_server: PrivateRedis) -> None:
    with redis_server.client() as client:  # before 7.0, records that are being run count into the place of a later one
        wait_until(lambda: not client.xlen(SLOW), "the records of other tests are done")
        counts_reads = "entries-read" in client.xinfo_groups(SLOW)[0]
    first = accepted(frontend, f"/predict/{SLOW}", sleep(15))
    wait_until(lambda: call(frontend, "GET", first).document["state"] == "running", "the first one runs")
    others = [accepted(frontend, f"/predict/{SLOW}", sleep(0)) for _ in range(11)]

    state = call(frontend, "GET", others[-1])
    assert (state.status, state.document["state"]) == (202, "waiting")
    assert 1 <= state.document["place"] <= 12
    assert state.document["expires"] > time.time()
    assert int(state.headers["Retry-After"]) >= 1
    assert call(frontend, "GET", first).document["state"] == "running"
    # From the last to the first: calls that are answered meanwhile bring the later ones forward.
    places = [call(frontend, "GET", place).document.get("place", 0) for place in reversed(others)]
    assert max(places) <= 12
    if counts_reads:  # before 7.0, a place is no further back than the end of the queue, and no more is known
        assert places == sorted(places, reverse=True)
    assert [call(frontend, "GET", f"{place}?wait=30").status for place in (first, *others)] == [200] * 12


def test_a_call_that_is_deleted_is_not_begun(frontend: RunningFrontend, redis_server: PrivateRedis) -> None:
    running, waiting = [
        accepted(frontend, f"/predict/{SLOW}", {"instances": [{"x": [seconds, 0]}, *[{"x": [0, 0]}] * 11]})
        for seconds in (10, 0)
    ]

    assert call(frontend, "DELETE", waiting).document["cancelled"] == 12
    assert call(frontend, "GET", waiting).status == 404
    assert call(frontend, "DELETE", waiting).status == 404
    assert call(frontend, "GET", f"{running}?wait=30").status == 200
    assert call(frontend, "DELETE", running).document["cancelled"] == 0
    with redis_server.client() as client:
        wait_until(lambda: not client.xlen(SLOW), "the records that were begun are finished")
        kept = [_id(client, name) for name in client.keys(keys.later_key(SLOW, "*"))]
    assert not [each for each in kept if each in running + waiting]


@pytest.mark.parametrize("wait", ["soon", "-1", "nan", "inf"])
def test_a_wait_is_a_number_of_seconds(frontend: RunningFrontend, wait: str) -> None:
    assert "wait is a number of seconds" in call(frontend, "GET", f"/results/x?wait={wait}").document["error"]


def test_a_call_that_no_node_begins_in_time(frontend: RunningFrontend) -> None:
    blocking = accepted(frontend, f"/predict/{SLOW}", sleep(8))
    place = accepted(frontend, f"/predict/{SLOW}?timeout=0.2", sleep(0))

    late = call(frontend, "GET", f"{place}?wait=30")

    assert (late.status, late.document["errors"][0]["code"]) == (504, "DeadlineExceeded")
    assert call(frontend, "GET", f"{blocking}?wait=30").status == 200


def test_a_call_belongs_to_its_api_key(guarded: RunningFrontend, redis_server: PrivateRedis) -> None:
    place = accepted(guarded, "/predict", ROW, ALICE)

    assert call(guarded, "GET", f"{place}?wait=30", headers=ALICE).status == 200
    assert call(guarded, "GET", place).status == 401
    for method in ("GET", "DELETE"):
        assert call(guarded, method, place, headers=BOB).status == 404
    listed = call(guarded, "GET", "/results", headers=ALICE).document
    assert [f"/results/{quote(each['id'], safe='')}" for each in listed] == [place]
    assert listed[0]["state"] == "done"
    assert call(guarded, "GET", "/results", headers=BOB).document == []

    second = accepted(guarded, "/predict?timeout=1", ROW, ALICE)
    with redis_server.client() as client:
        lives_ms = [client.pttl(name) for name in client.keys(keys.calls_key("?*"))]
    listed = call(guarded, "GET", "/results", headers=ALICE).document
    assert [f"/results/{quote(each['id'], safe='')}" for each in listed] == [second, place], "the newest first"
    assert min(lives_ms) > 7_000_000, "a call with a short life does not shorten that of the list"
    refused = call(guarded, "POST", "/predict", ROW, LATER | ALICE)
    assert refused.status == 429
    assert "laterPerKey" in refused.document["error"]
    assert call(guarded, "DELETE", place, headers=ALICE).status == 200
    third = accepted(guarded, "/predict", ROW, ALICE)
    for each in (second, third):
        call(guarded, "DELETE", each, headers=ALICE)


def test_without_api_keys_nobody_sees_the_ids_of_all(frontend: RunningFrontend) -> None:
    assert "apiKeysFile" in call(frontend, "GET", "/results").document["error"]


def test_results_are_no_results_of_queues(frontend: RunningFrontend, redis_server: PrivateRedis) -> None:
    """Clients of the original take every key below the prefix of results; and names of keys do not tell an id."""
    place = accepted(frontend, "/predict", ROW)
    call(frontend, "GET", f"{place}?wait=30")

    with redis_server.client() as client:
        names = [name.decode() for name in client.keys("*")]
        assert not [name for name in names if name.startswith(keys.result_prefix(JOB))]
        assert not [name for name in names if place[9:41] in name]
        (key,) = [name for name in names if name.startswith(keys.later_key(JOB, "")) and _id(client, name) in place]
        assert 0 < client.pttl(key) <= 7_200_000


def _id(client: Any, key: str | bytes) -> str:
    return str(client.hget(key, "id").decode()[:32])


def called_back(hooks: Receiver, place: str, number: int = 1) -> tuple[bytes, int]:
    """The body and the status that a receiver was sent."""
    message = f"{place[9:41]}-{number}"
    wait_until(lambda: message in hooks.taken, "the callback comes")
    return hooks.taken[message]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/predict", ROW), (V2, TENSORS), (f"{V1}:predict", {"instances": [[1, 2, 3, 4], [-1, 0, 0, 0]]})],
)
def test_a_callback_is_sent_the_answer(frontend: RunningFrontend, hooks: Receiver, path: str, body: Any) -> None:
    now = call(frontend, "POST", path, body)

    place = accepted(frontend, path, body, {"Callback": f"{hooks.url}/hook?n=1"})

    assert called_back(hooks, place) == (now.body, now.status)


def test_a_callback_alone_asks_for_an_answer_later(frontend: RunningFrontend, hooks: Receiver) -> None:
    reply = call(frontend, "POST", f"/predict?callback={quote(hooks.url)}", ROW)

    assert reply.status == 202
    assert called_back(hooks, reply.headers["Location"])[1] == 200


def test_a_callback_that_fails_is_tried_again(frontend: RunningFrontend, hooks: Receiver) -> None:
    hooks.fail_next("error", "redirect", "cut")

    place = accepted(frontend, "/predict", ROW, {"Callback": hooks.url})

    called_back(hooks, place)
    assert [hooks.posts[fault] for fault in ("error", "redirect", "cut", "forged")] == [1, 1, 1, 0]


def test_a_callback_to_an_address_that_is_not_public_is_never_made(
    frontend: RunningFrontend, redis_server: PrivateRedis
) -> None:
    with receiver(KEY) as inner:
        refused = call(frontend, "POST", "/predict", ROW, {"Callback": inner.url})
        assert (refused.status, "callbackHosts" in refused.document["error"]) == (400, True)
        before = given_up(frontend)
        place = accepted(frontend, "/predict", ROW, {"Callback": f"https://localhost:{inner.server_port}/"})
        wait_until(lambda: given_up(frontend) > before, "the callback is given up")

        assert call(frontend, "GET", place).status == 200, "the result is there all the same"
        assert not inner.posts
        assert "has the address" in frontend.log
    with redis_server.client() as client:
        wait_until(lambda: not client.zcard(keys.CALLBACKS), "it is not tried again")


def given_up(frontend: RunningFrontend) -> int:
    text = call(frontend, "GET", "/metrics", headers={"Accept": "text/plain"}).body.decode()
    found = re.search(r'cluster_serving_callbacks_total\{outcome="failed"\} (\d+)', text)
    return int(found[1]) if found else 0


def test_without_a_secret_nobody_is_called_back(guarded: RunningFrontend) -> None:
    refused = call(guarded, "POST", "/predict", ROW, ALICE | {"Callback": "https://a.example/"})

    assert (refused.status, "callbackSecret" in refused.document["error"]) == (400, True)


def test_a_result_outlives_the_frontend_that_took_the_call(frontend: RunningFrontend) -> None:
    place = accepted(frontend, f"/predict/{SLOW}", sleep(0.5))

    frontend.process.kill()
    frontend.process.wait(120)
    frontend.start()

    assert call(frontend, "GET", f"{place}?wait=30").status == 200


def test_a_stop_does_not_wait_for_waiting_callers(home: Path, redis_server: PrivateRedis) -> None:
    with running_frontend(home / "stopped", redis_server, jobName=JOB) as stopped:
        place = accepted(stopped, f"/predict/{SLOW}", sleep(8))
        found: list[Reply] = []
        waiting = threading.Thread(target=lambda: found.append(call(stopped, "GET", f"{place}?wait=30")))
        waiting.start()
        with redis_server.client() as client:
            wait_until(lambda: any(each["cmd"] == "hget" for each in client.client_list()), "the result is asked for")

        assert stopped.stop(signal.SIGTERM) == 0
        waiting.join(120)

        assert found[0].status == 202
