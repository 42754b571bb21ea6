"""Gate that every request passes: keys, tokens, time limits, ids, and the report of the time that the request took."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cluster_serving.client import keys
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.stopped import stopped
from support.wait import wait_until

pytestmark = pytest.mark.measured

JOB = "http_gate"
SLOW = "http_gate_slow"
GOOD = {"instances": [{"x": [1, 2, 3, 4]}]}
TENTH = {"x": [0.1, 0]}
"""Takes the slow model a tenth of a second."""
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Reply(NamedTuple):
    """Response of the frontend, its body read as JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


def call(
    frontend: RunningFrontend, path: str = "/predict", body: Any = None, headers: Mapping[str, str] | None = None
) -> Reply:
    """One request, a POST where it has a body."""
    connection = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=30)
    try:
        text = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, text, dict(headers or {}))
        response = connection.getresponse()
        return Reply(response.status, dict(response.headers), json.loads(response.read()))
    finally:
        connection.close()


@pytest.fixture(scope="module")
def quick(redis_server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node of a quick model."""
    home = tmp_path_factory.mktemp("nodes") / "quick"
    with running_node(home, redis_server, modelPath=str(MODELS / "affine.py"), jobName=JOB) as node:
        yield node


@pytest.fixture(scope="module")
def home(quick: RunningNode, redis_server: PrivateRedis) -> Iterator[Path]:
    """The directory of that node, and of one of a model that takes a tenth of a second for each batch."""
    home = quick.config_path.parents[1]
    with running_node(home / "slow", redis_server, modelPath=str(MODELS / "slow.py"), jobName=SLOW, batchSize=1):
        yield home


@pytest.fixture(scope="module")
def frontend(home: Path, redis_server: PrivateRedis) -> Iterator[RunningFrontend]:
    with running_frontend(home / "frontend", redis_server, jobName=JOB, maxBodySize="64k") as frontend:
        yield frontend


def test_a_request_id_comes_back(frontend: RunningFrontend) -> None:
    assert call(frontend, body=GOOD, headers={"X-Request-ID": "mine-7"}).headers["X-Request-ID"] == "mine-7"
    assert "X-Request-ID" not in call(frontend, body=GOOD).headers
    for path in ("/predict", "/predict?timeout=x", "/nowhere"):
        wrong = call(frontend, path, body={}, headers={"X-Request-ID": "of-an-error"})
        assert wrong.status >= 400
        assert wrong.headers["X-Request-ID"] == "of-an-error"


def test_the_answer_says_where_the_time_went(frontend: RunningFrontend) -> None:
    timing = call(frontend, body=GOOD).headers["Server-Timing"]

    parts = {
        name: float(value.removeprefix("dur=")) for name, value in (part.split(";") for part in timing.split(", "))
    }
    assert list(parts) == ["queue", "wait", "run", "total"]
    assert parts["wait"] + parts["run"] <= parts["total"]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon", ""])
def test_a_timeout_is_a_number_of_seconds(frontend: RunningFrontend, value: str) -> None:
    reply = call(frontend, body=GOOD, headers={"X-Request-Timeout": value})

    assert reply.status == 400
    assert "number of seconds" in reply.body["error"]


def test_what_is_not_there_in_time_is_504(frontend: RunningFrontend) -> None:
    wait_until(lambda: in_a_millisecond(frontend), "no heartbeat tells of records of another test")
    reply = call(frontend, f"/predict/{SLOW}?timeout=8", {"instances": [TENTH] * 240})

    # Some of the records have been answered by then, and are.
    assert reply.status == 200
    assert {error["code"] for error in reply.body["errors"]} == {"DeadlineExceeded"}
    assert wait_until(lambda: in_a_millisecond(frontend), "the others are answered") == 504


def in_a_millisecond(frontend: RunningFrontend) -> int:
    """Return the status of a call with so little time; 0 for 429, while records wait by the last look at the queue.

    The record of such a call may wait for the next one.
    """
    status = call(frontend, f"/predict/{SLOW}", {"instances": [TENTH]}, {"X-Request-Timeout": "0.001"}).status
    return 0 if status == 429 else status


def test_a_large_body_is_refused_before_it_is_sent(frontend: RunningFrontend) -> None:
    reply = call(frontend, body=b" " * (65 << 10))

    assert reply.status == 413
    assert reply.body["error"]


@pytest.mark.parametrize("kind", ["image/jpeg", "Multipart/Form-Data; boundary=x"])
@pytest.mark.parametrize("path", [f"/v1/models/{JOB}:predict", f"/v2/models/{JOB}/infer"])
def test_a_file_for_json_is_told_where_to_go(frontend: RunningFrontend, path: str, kind: str) -> None:
    reply = call(frontend, path, b"\xff\xd8\xff\xe0", {"Content-Type": kind})

    assert reply.status == 415
    assert (
        reply.body["error"] == f"a body of {kind.partition(';')[0].lower()} goes to /predict/{JOB}; here JSON is wanted"
    )


@pytest.mark.parametrize(("path", "status"), [("/nowhere", 404), ("/predict", 405)])
def test_what_no_route_answers_is_json_too(frontend: RunningFrontend, path: str, status: int) -> None:
    reply = call(frontend, path)

    assert reply.status == status
    assert reply.body["error"]


def test_who_hangs_up_takes_his_records_back(frontend: RunningFrontend, redis_server: PrivateRedis) -> None:
    body = json.dumps({"instances": [TENTH] * 400})
    with redis_server.client() as client:
        with socket.create_connection(("127.0.0.1", frontend.port)) as connection:
            connection.sendall(
                f"POST /predict/{SLOW} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            wait_until(lambda: client.xlen(SLOW) > 350, "the records wait")

        # Only what the node has read is still there; at ten a second it could not have answered the others.
        wait_until(lambda: client.xlen(SLOW) <= client.xpending(SLOW, keys.GROUP)["pending"], "they are gone", 30)
        wait_until(lambda: client.xlen(SLOW) == 0, "the node has answered what it had read")


def test_one_that_only_sends_no_more_has_its_answer(frontend: RunningFrontend) -> None:
    body = json.dumps({"instances": [TENTH] * 15})
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=60) as connection:
        connection.sendall(
            f"POST /predict/{SLOW} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(1 << 16):
            answer += chunk

    *interim, final = answer.split(b"HTTP/1.1 ")[1:]
    assert set(interim) == {b"100 Continue\r\n\r\n"}
    assert final.startswith(b"200 OK\r\n")


def test_a_full_queue_is_429_and_says_when_to_try_again(
    frontend: RunningFrontend, quick: RunningNode, redis_server: PrivateRedis
) -> None:
    with redis_server.client() as client, stopped(quick.process.pid):  # its next heartbeat would open the queue again
        client.set(keys.full_key(JOB), "for the test", px=60_000)
        reply = call(frontend, body=GOOD)
        client.delete(keys.full_key(JOB))

    assert reply.status == 429
    assert int(reply.headers["Retry-After"]) >= 1
    assert "for the test" in reply.body["error"]


def test_a_wait_that_is_too_long_is_429_at_once(frontend: RunningFrontend, redis_server: PrivateRedis) -> None:
    """The node does ten records a second; once that has been seen, the hundredth cannot be promised in a second."""
    many = {"instances": [TENTH] * 300}
    busy = threading.Thread(target=call, args=(frontend, f"/predict/{SLOW}?timeout=20", many))
    busy.start()

    def refused() -> bool:
        reply = call(frontend, f"/predict/{SLOW}?timeout=1", {"instances": [TENTH]})
        assert reply.status in (200, 429, 504)
        return reply.status == 429 and int(reply.headers["Retry-After"]) > 1

    wait_until(refused, "the wait is foreseen")
    busy.join(120)
    with redis_server.client() as client:
        wait_until(lambda: client.xlen(SLOW) == 0, "the queue is empty")


def test_a_token_for_every_request(home: Path, redis_server: PrivateRedis) -> None:
    limits = {"tokenBucketEnabled": True, "tokensPerSecond": 0.01, "tokenAcquireTimeout": 0}
    with running_frontend(home / "limited", redis_server, jobName=JOB, **limits) as frontend:
        replies = [call(frontend, body=GOOD) for _ in range(8)]
        health = [call(frontend, "/livez").status for _ in range(8)]

    assert replies[0].status == 200
    assert replies[-1] == Reply(429, replies[-1].headers, {"error": "limited"})
    assert replies[-1].headers["Retry-After"] == "100"
    assert set(health) == {200}


def test_the_status_of_the_original_for_a_request_without_a_token(home: Path, redis_server: PrivateRedis) -> None:
    limits = {"tokenBucketEnabled": True, "tokensPerSecond": 0.01, "tokenAcquireTimeout": 0, "rateLimitStatus": 500}
    with running_frontend(home / "as-before", redis_server, jobName=JOB, **limits) as frontend:
        statuses = [call(frontend, body=GOOD).status for _ in range(3)]

    assert statuses == [200, 500, 500]


def test_api_keys(home: Path, redis_server: PrivateRedis) -> None:
    file = home / "keys"
    file.write_text("# who may call\nteam-a:s3cret-of-a\ns3cret-of-b\n")
    file.chmod(0o600)
    with running_frontend(home / "guarded", redis_server, jobName=JOB, apiKeysFile=str(file)) as frontend:
        assert call(frontend, body=GOOD).status == 401
        for wrong in ({"X-API-Key": "wrong"}, {"Authorization": "Basic s3cret-of-b"}, {"Authorization": "Bearer"}):
            assert call(frontend, body=GOOD, headers=wrong).status == 401
        for right in (
            {"X-API-Key": "s3cret-of-a"},
            {"X-API-Key": "s3cret-of-a "},
            {"Authorization": "Bearer s3cret-of-b"},
            {"Authorization": "bearer  s3cret-of-b "},
        ):
            assert call(frontend, body=GOOD, headers=right).status == 200
        assert call(frontend, "/metrics").status == 401
        assert call(frontend, "/livez").status == 200


def test_a_trace_reaches_the_log_of_the_node(frontend: RunningFrontend, home: Path) -> None:
    raising = {"instances": [{"x": [-1, 2, 3, 4]}]}

    reply = call(frontend, body=raising, headers={"traceparent": TRACE})

    assert reply.status == 500
    assert "a row that raises" in reply.body["error"]
    log = home / "quick" / "test.log"
    wait_until(lambda: TRACE in log.read_text(), "the log of the node names the trace")


def test_without_a_node_everything_is_503_or_404(own_redis: PrivateRedis, tmp_path: Path) -> None:
    with running_frontend(tmp_path / "frontend", own_redis, jobName=JOB) as frontend:
        ready = call(frontend, "/readyz")
        early = call(frontend, body=GOOD)
        with running_node(tmp_path / "node", own_redis, modelPath=str(MODELS / "affine.py"), jobName=JOB):
            wait_until(lambda: call(frontend, "/readyz").status == 200, "it is ready")
            assert call(frontend, body=GOOD).status == 200
            other = call(frontend, "/predict/other", GOOD)
        wait_until(lambda: call(frontend, "/readyz").status == 503, "the frontend has seen that the node is gone")
        gone = call(frontend, body=GOOD)
        own_redis.stop()
        away = call(frontend, body=GOOD)
        lost = call(frontend, "/model-secure", b"secret=s&salt=t")
        wait_until(lambda: "reach" in call(frontend, "/readyz").body["error"], "it is told")
        unready = call(frontend, "/readyz")
        own_redis.start()

    assert (ready.status, early.status, other.status, gone.status, away.status) == (503, 503, 404, 503, 503)
    assert JOB in other.body["error"]
    start = f"no node of the job {JOB} lives: start one, with jobName: {JOB}"
    assert early.body["error"] == f"{start}; models: none, for no node lives on this Redis"
    assert {"Retry-After"} <= gone.headers.keys() & away.headers.keys()
    told = [reply.body["error"] for reply in (ready, early, gone, away, lost)]
    assert not any(str(own_redis.port) in text for text in told)
    assert lost.body["error"] == "Redis cannot be reached or cannot serve; the log of the frontend says why"
    assert f"Redis at redis://{own_redis.url}/0 cannot be reached" in unready.body["error"]


def test_no_model_is_ready_while_redis_is_away(own_redis: PrivateRedis, tmp_path: Path) -> None:
    probes = ("/readyz", "/v2/health/ready", f"/v2/models/{JOB}/ready")
    with (
        running_node(tmp_path / "node", own_redis, modelPath=str(MODELS / "affine.py"), jobName=JOB),
        running_frontend(tmp_path / "frontend", own_redis, jobName=JOB) as frontend,
    ):

        def statuses() -> set[int]:
            return {call(frontend, path).status for path in probes}

        wait_until(lambda: statuses() == {200}, "it is ready")
        own_redis.stop()
        wait_until(lambda: statuses() == {503}, "it is away")
        why = call(frontend, probes[-1]).body["error"]
        (version,) = call(frontend, f"/v1/models/{JOB}").body["model_version_status"]
        own_redis.start()
        wait_until(lambda: statuses() == {200}, "it is back")

    assert (version["state"], version["status"]["error_code"]) == ("UNKNOWN", "UNAVAILABLE")
    assert why == f"{JOB} is not ready: Redis cannot be reached or cannot serve; the log of the frontend says why"
