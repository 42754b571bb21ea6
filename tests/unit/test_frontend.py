"""The client over HTTP, against a real server on this machine."""

import asyncio
import base64
import inspect
import json
import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import (
    AsyncInputQueue,
    AsyncOutputQueue,
    CodecError,
    ConnectionLost,
    InputQueue,
    InvalidValue,
    OutputQueue,
    QueueFull,
    RecordFailed,
    ResultTimeout,
    perdict,
)
from cluster_serving.client.api import ConnectionSettings
from cluster_serving.client.http import frontend
from cluster_serving.client.http.frontend import Frontend
from support.http_server import HttpServer


class Handler(BaseHTTPRequestHandler):
    """Answers as a frontend does."""

    def do_GET(self) -> None:
        """The welcome line; below a prefix that has no slash at its end, the way to it."""
        if self.path == "/prefix":
            self._redirect(301, "/prefix/")
        else:
            self._answer(200, "welcome")

    def do_POST(self) -> None:
        """One prediction, or an error for a request without instances; or what the body asks for."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "status" in body:
            self._answer(body["status"], json.dumps({"error": f"it takes {self.headers['X-Request-Timeout']} s"}))
        elif "login" in body:
            self._answer(400, json.dumps({"error": self.headers[body["login"]]}))
        elif "moved" in body:
            self._redirect(body["moved"], body["to"])
        elif "hang" in body:
            self.server.hold.wait(20)  # type: ignore[attr-defined]
        elif "part" in body:
            self.send_response(body["part"])
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b'{"error"')
            if body["slow"]:
                self.server.hold.wait(20)  # type: ignore[attr-defined]
        elif "deep" in body:
            self._answer(200, "[" * 200_000)
        elif "instances" in body:
            self._answer(200, json.dumps({"predictions": ['{"value":"[[903,0.13]]"}']}))
        else:
            self._answer(400, "Wrong content format.")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""

    def _redirect(self, status: int, location: str) -> None:
        self.send_response(status)
        self.send_header("Location", location)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def url() -> Iterator[str]:
    with HttpServer(("127.0.0.1", 0), Handler) as server:
        hold = threading.Event()
        server.hold = hold  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        hold.set()
        server.shutdown()
        thread.join()


def test_predict_goes_over_http(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    queue = InputQueue(frontend_url=url, sync=True)

    assert queue.predict('{"instances": [{"t": [1.0]}]}') == [[903, 0.13]]
    assert perdict(url, '{"instances": [{"t": [1.0]}]}') == [[903, 0.13]]
    assert "Attempt connecting to Cluster Serving frontend success" in capsys.readouterr().out


def test_an_error_of_the_frontend_is_raised(url: str) -> None:
    with pytest.raises(RecordFailed, match="Wrong content format"):
        InputQueue(frontend_url=url).predict("{}")


def test_an_array_over_http_is_told_with_what_is_wanted(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"JSON text or the same as a dict, \{'instances': .* ndarray is not JSON"):
        InputQueue(frontend_url=url).predict({"x": np.zeros(2)})


def test_lists_too_deep_for_json_are_told_as_such(url: str) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidValue, match="predict takes JSON text or the same as a dict"):
        InputQueue(frontend_url=url).predict({"instances": deep})


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, RecordFailed), (429, QueueFull), (500, RecordFailed), (503, ConnectionLost), (504, ResultTimeout)],
)
def test_each_status_is_the_error_that_the_queue_would_raise(url: str, status: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"it takes 2\.5 s"):
        InputQueue(frontend_url=url).predict({"status": status}, timeout=2.5)


def test_a_frontend_that_does_not_answer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontend, "_GRACE_S", 0.1)

    with pytest.raises(ResultTimeout, match=r"in 0\.1 s"):
        InputQueue(frontend_url=url).predict({"hang": True}, timeout=0.1)


@pytest.mark.parametrize("timeout", [0, -0.5, -math.inf])
def test_a_call_without_time_left_ends_as_one_over_the_queue(url: str, timeout: float) -> None:
    with pytest.raises(ResultTimeout, match=f"no answer of the frontend at {url} in {timeout:g} s"):
        InputQueue(frontend_url=url).predict({"instances": [{}]}, timeout=timeout)


@pytest.mark.parametrize("timeout", [1e10, math.inf, np.float32(5)])
def test_a_call_may_have_any_time(url: str, timeout: float) -> None:
    assert InputQueue(frontend_url=url).predict({"instances": [{}]}, timeout=timeout) == [[903, 0.13]]


@pytest.mark.parametrize("status", [200, 400, 503])
@pytest.mark.parametrize(("slow", "kind"), [(False, ConnectionLost), (True, ResultTimeout)])
def test_an_answer_of_which_a_part_comes(
    status: int, slow: bool, kind: type[Exception], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "_GRACE_S", 0.1)

    with pytest.raises(kind, match=f"frontend at {url}"):
        InputQueue(frontend_url=url).predict({"part": status, "slow": slow}, timeout=0.2 if slow else 20)


def test_an_answer_too_deep_to_read(url: str) -> None:
    with pytest.raises(CodecError, match="answered without JSON: RecursionError"):
        InputQueue(frontend_url=url).predict({"deep": True})


def test_an_api_key_that_no_header_holds(url: str) -> None:
    with pytest.raises(InvalidValue, match=f"the URL {url} or the API key cannot be sent"):
        Frontend(url, "key\n").ask("/", timeout=20)


def test_user_and_password_of_the_url_are_sent_to_the_host_behind_them(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = InputQueue(url.replace("://", "://user:s3cr%2Ft@") + "/")

    assert "success" in capsys.readouterr().out
    assert repr(queue).endswith(f"frontend={url!r})")
    sent = f"Basic {base64.b64encode(b'user:s3cr/t').decode()}"
    with pytest.raises(RecordFailed) as caught:
        queue.predict({"login": "Authorization"})
    assert str(caught.value) == f"{url}: {sent} (HTTP 400)"


@pytest.mark.parametrize("key", ["s3cr3t", "s3cr3t\n"])
def test_a_queue_sends_the_api_key_that_its_frontend_wants(url: str, key: str) -> None:
    queue = InputQueue(url, api_key=key)

    assert "s3cr3t" not in repr(queue)
    with pytest.raises(RecordFailed) as caught:
        queue.predict({"login": "X-API-Key"})
    assert str(caught.value) == f"{url}: s3cr3t (HTTP 400)"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_other_host_gets_the_api_key_of_a_frontend_that_has_moved(url: str, status: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        moved = f"http://127.0.0.1:{other.getsockname()[1]}/predict"
        with pytest.raises(InvalidValue, match=rf"redirects to {moved} \(HTTP {status}\): give its URL there"):
            Frontend(url, "key").ask("/predict", timeout=20, request={"moved": status, "to": moved})
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_a_frontend_may_redirect_a_get_within_itself(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    Frontend.greeted(f"{url}/prefix")

    assert "Attempt connecting to Cluster Serving frontend success" in capsys.readouterr().out


def test_a_frontend_that_is_not_there_is_said_and_not_fatal(capsys: pytest.CaptureFixture[str]) -> None:
    queue = InputQueue(frontend_url="http://127.0.0.1:1")

    assert queue.frontend_url == "http://127.0.0.1:1"
    assert "Connection error, please check your HTTP server. Error msg is" in capsys.readouterr().out
    with pytest.raises(ConnectionLost):
        queue.predict({"instances": []})


@pytest.mark.parametrize(
    ("url", "shown", "call"),
    [
        ("1.1.1.1:1", "1.1.1.1:1", 'InputQueue(host="1.1.1.1", port=1)'),
        ("localhost:6399", "localhost:6399", 'InputQueue(host="localhost", port=6399)'),
        ("redis://:s3cret@host:6379/0", "redis://host:6379/0", 'InputQueue(url="redis://...")'),
        ("user:s3cret@host:6379", "host:6379", 'InputQueue(url="redis://...")'),
        ("host", "host", 'InputQueue(host="host"), or InputQueue(name="host") for the job'),
        ("config.yaml", "config.yaml", 'InputQueue(host="...", port=6379, name="..."), because a client reads no file'),
    ],
)
def test_an_address_of_redis_is_no_frontend(
    url: str, shown: str, call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The original makes such a queue without an exception, and its tests do."""
    queue = InputQueue(url)

    why = f"frontend_url begins with http:// or https://, not {shown!r}; for Redis, write {call}"
    told = capsys.readouterr().out
    assert told == f"Connection error, please check your HTTP server. Error msg is  {why}\n"
    with pytest.raises(InvalidValue) as caught:
        queue.predict({"instances": []})
    assert str(caught.value) == why
    assert "s3cret" not in told + repr(queue)


@pytest.mark.parametrize(
    ("queue", "address", "call"),
    [
        (InputQueue, ("redis", 6380), 'InputQueue(host="redis", port=6380)'),
        (OutputQueue, ("redis:6380",), 'OutputQueue(host="redis", port=6380)'),
        (AsyncInputQueue, ("http://user:s3cret@host:10020",), 'InputQueue("http://...")'),
        (AsyncOutputQueue, ("redis://:s3cret@host",), 'AsyncOutputQueue(url="redis://...")'),
    ],
)
def test_settings_without_names_are_told_the_call_with_names(
    queue: type[Any], address: tuple[Any, ...], call: str
) -> None:
    with pytest.raises(TypeError) as caught:
        queue(*address)

    assert str(caught.value) == f"the settings of {queue.__name__} have names; write {call}"


def test_the_attributes_that_programs_of_the_original_read() -> None:
    queue = InputQueue(host="1.1.1.1", port="1111", name="other")

    assert (queue.name, queue.host, queue.port, queue.frontend_url) == ("other", "1.1.1.1", "1111", None)
    assert (InputQueue().name, InputQueue().host, InputQueue().port) == ("serving_stream", "localhost", "6379")


@pytest.mark.parametrize(
    ("queue", "settings", "told"),
    [
        (InputQueue, {"hots": "x"}, "InputQueue has no setting hots (did you mean host?)"),
        (
            AsyncInputQueue,
            {"patience": 1, "passwort": "s3cret"},
            "AsyncInputQueue has no setting patience (did you mean patience_s?), passwort (did you mean password?)",
        ),
        (OutputQueue, {"sll": True}, "OutputQueue has no setting sll (did you mean ssl?)"),
        (AsyncOutputQueue, {"xyz": 1}, "AsyncOutputQueue has no setting xyz; it has host, port, name, url, "),
    ],
)
def test_an_unknown_setting_is_told_with_the_nearest_one(queue: type[Any], settings: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        queue(**settings)

    assert str(caught.value).startswith(told)


@pytest.mark.parametrize("window", [None, "5", math.nan])
def test_a_window_that_is_no_number_is_named(window: Any) -> None:
    async def asynchronous() -> None:
        queue = AsyncInputQueue()
        for stream in queue.predict_many([], window=window), queue.as_completed([], window=window):
            with pytest.raises(ValueError, match=f"window is {window!r}, but a window is a number of records"):
                await anext(stream)

    queue = InputQueue()
    for stream in queue.predict_many([], window=window), queue.as_completed([], window=window):
        with pytest.raises(ValueError, match=f"window is {window!r}, but a window is a number of records"):
            next(stream)
    asyncio.run(asynchronous())


@pytest.mark.parametrize("timeout", [None, "5", math.nan])
def test_a_timeout_that_is_no_number_is_named_by_every_call(url: str, timeout: Any) -> None:
    async def asynchronous() -> None:
        queue, output = AsyncInputQueue(), AsyncOutputQueue()
        with pytest.raises(ValueError, match="timeout is "):
            await queue.predict({"x": 1.0}, timeout)
        streams = (
            queue.predict_many([{"x": 1.0}], timeout),
            queue.as_completed([("a", {"x": 1.0})], timeout),
            output.results(timeout),
        )
        for stream in streams:
            with pytest.raises(ValueError, match="timeout is "):
                await anext(stream)

    queue, output = InputQueue(), OutputQueue()
    for each in queue, InputQueue(url):
        with pytest.raises(ValueError, match="timeout is "):
            each.predict({"x": 1.0}, timeout)
    for stream in (
        queue.predict_many([{"x": 1.0}], timeout),
        queue.as_completed([("a", {"x": 1.0})], timeout),
        output.results(timeout),
    ):
        with pytest.raises(ValueError, match="timeout is "):
            next(stream)
    asyncio.run(asynchronous())


@pytest.mark.parametrize("queue", [InputQueue, OutputQueue, AsyncInputQueue, AsyncOutputQueue])
def test_help_and_notebooks_see_every_setting(queue: type[Any]) -> None:
    written_out = inspect.signature(queue).parameters

    assert [*written_out][-len(ConnectionSettings.__annotations__) :] == [*ConnectionSettings.__annotations__]
    assert "settings" not in written_out


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"port": "abc"}, "port is 'abc', but a port is a number from 1 to 65535"),
        ({"port": 0}, "port is '0', but a port is a number from 1 to 65535"),
        ({"host": 5}, "host must be a text, not int"),
        ({"url": b"redis://:secret@h"}, "url must be a text, not bytes"),
        ({"db": -1}, "db is -1, but a database is a whole number from 0"),
        ({"db": 1.5}, r"db is 1\.5, but a database is a whole number from 0"),
        ({"url": "redis://localhost/-1"}, "port or db of the Redis URL is not a number"),
        ({"ssl_ca_certs": 5}, "ssl_ca_certs must be a path, not int"),
        ({"port": 65536}, "port is '65536', but a port is a number from 1 to 65535"),
        ({"timeout_s": "5"}, "timeout_s is '5', but a time is a number of seconds"),
        *(
            ({"timeout_s": each}, f"timeout_s is {each!r}, but Redis has from 0.001 to 1000000000 s for a reply")
            for each in (0, -1.0, 1e-6, 10**19, math.inf)
        ),
        ({"timeout_s": math.nan}, "timeout_s is nan, but a time is a number of seconds"),
        ({"patience_s": None}, "patience_s is None, but a time is a number of seconds"),
        ({"deadline_s": True}, "deadline_s is True, but a time is a number of seconds"),
        ({"deadline_s": math.nan}, "deadline_s is nan, but a time is a number of seconds"),
    ],
)
def test_a_setting_of_another_kind_is_named(setting: dict[str, Any], told: str) -> None:
    for queue in InputQueue, AsyncInputQueue:
        with pytest.raises(ValueError, match=told):
            queue(**setting)


@pytest.mark.parametrize("host", ["localhost:6379", "redis://user:s3cret@localhost:6379/0", "localhost/0"])
def test_a_host_is_a_host_alone(host: str) -> None:
    with pytest.raises(
        ValueError, match="host is the name or the address of a machine alone; write InputQueue"
    ) as caught:
        InputQueue(host=host)

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_a_host(host: str) -> None:
    settings = InputQueue(host=host, port=6380).settings

    assert (settings.host, settings.port) == ("::1", 6380)


@pytest.mark.parametrize("setting", ["ssl_certfile", "ssl_keyfile", "ssl_ca_certs"])
def test_a_missing_file_of_tls_is_named(setting: str, tmp_path: Path) -> None:
    settings: Any = {setting: f"{tmp_path}/none.pem"}

    with pytest.raises(ValueError, match=f"{setting} is '{tmp_path}/none.pem', but there is no such file"):
        InputQueue(ssl=True, **settings)


def test_a_queue_shows_its_job_and_redis() -> None:
    queues = InputQueue(), OutputQueue(url="redis://user:s3cret@host:6380/2", name="job")

    assert [*map(repr, queues)] == [
        "InputQueue(job='serving_stream', redis='redis://localhost:6379/0')",
        "OutputQueue(job='job', redis='redis://host:6380/2')",
    ]
    assert repr(InputQueue("http://user:s3cret@127.0.0.1:1")) == (
        "InputQueue(job='serving_stream', redis='redis://localhost:6379/0', frontend='http://127.0.0.1:1')"
    )


def test_a_program_s_own_queue_may_have_a_setting_of_the_same_name() -> None:
    class Queue(OutputQueue):
        def __init__(self, host: str = "redis", **settings: Any) -> None:
            super().__init__(host=host, **settings)

    assert [*inspect.signature(Queue).parameters].count("host") == 1
    assert Queue(port=1).host == "redis"
