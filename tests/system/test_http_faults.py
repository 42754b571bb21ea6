"""Frontend, node and Redis stop and come back under load: nothing hangs, and calls succeed again."""

import http.client
import json
import signal
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest

from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import RunningFrontend, running_frontend
from support.running_node import RunningNode, running_node
from support.wait import wait_until

JOB = "http_faults"
BODY = json.dumps({"instances": [{"x": [1.0, 2.0, 3.0, 4.0]}]})
RIGHT = [3.0, 5.0, 7.0, 9.0]
TIMEOUT_S = 5
PATIENT_S = 30  # where no call may fail: a busy machine is no fault
HANGS_S = 60  # a call that takes so long waits for nothing
PAUSE_S = 0.02  # between the calls of one caller: the cores are for what is tested
ALLOWED = {"200", "503", "504", "no connection"}


class Load:
    """Callers that never stop: what they were answered, and how long the longest call took."""

    def __init__(self, url: str, timeout_s: float, callers: int = 2) -> None:
        self._timeout_s = timeout_s
        self.answers: Counter[str] = Counter()
        self.longest_s = 0.0
        self._address = urlsplit(url)
        self._stopping = False
        self._threads = [threading.Thread(target=self._call) for _ in range(callers)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the calls, and check that none was answered wrongly or hung."""
        self._stopping = True
        for thread in self._threads:
            thread.join(2 * HANGS_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert set(self.answers) <= ALLOWED, self.answers
        assert self.longest_s < HANGS_S

    def goes_on(self, count: int = 20) -> None:
        """Wait until so many more calls have succeeded."""
        enough = self.answers["200"] + count
        wait_until(lambda: self.answers["200"] >= enough, f"{count} calls succeed; so far {self.answers}")

    def _call(self) -> None:
        connection = http.client.HTTPConnection(str(self._address.hostname), self._address.port, timeout=HANGS_S)
        with closing(connection):
            while not self._stopping:
                begun_s = time.monotonic()
                answer = self._answer(connection)
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                self.answers[answer] += 1
                if answer != "200":
                    connection.close()
                time.sleep(PAUSE_S)

    def _answer(self, connection: http.client.HTTPConnection) -> str:
        try:
            connection.request("POST", "/predict", BODY, {"X-Request-Timeout": str(self._timeout_s)})
            response = connection.getresponse()
            text = response.read()
        except TimeoutError:
            return "no answer"
        except (OSError, http.client.HTTPException):
            return "no connection"
        if response.status == 200 and _outputs(text)[0] != RIGHT:
            return f"wrong: {text!r}"
        if response.status != 200 and not json.loads(text)["error"]:
            return f"no reason: {text!r}"
        return str(response.status)


def _outputs(text: bytes) -> list[list[float]]:
    value = json.loads(json.loads(text)["predictions"][0])["value"]
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(value):
        output, at = decoder.raw_decode(value, at)
        found.append(output["data"])
    return found


@pytest.fixture(scope="module")
def node(server: PrivateRedis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    model = str(MODELS / "affine.py")
    with running_node(tmp_path_factory.mktemp("node"), server, modelPath=model, jobName=JOB, lease=2) as node:
        yield node


@pytest.fixture(scope="module")
def frontend(
    server: PrivateRedis, node: RunningNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningFrontend]:
    with running_frontend(tmp_path_factory.mktemp("frontend"), server, jobName=JOB) as frontend:
        yield frontend


def _serves_anew(node: RunningNode, started: int) -> bool:
    return node.log.count("event=serving") > started


@contextmanager
def load(frontend: RunningFrontend, timeout_s: float = TIMEOUT_S) -> Generator[Load]:
    load = Load(frontend.url, timeout_s)
    try:
        load.goes_on()
        yield load
        load.goes_on()
    finally:
        load.stop()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_redis_comes_back(frontend: RunningFrontend, server: PrivateRedis, number: signal.Signals) -> None:
    with load(frontend) as calls:
        server.stop(number)
        wait_until(lambda: calls.answers["503"] > 10, "calls are told")
        server.start()


def test_a_node_comes_back(frontend: RunningFrontend, node: RunningNode) -> None:
    with load(frontend) as calls:
        node.stop()
        wait_until(lambda: calls.answers["503"] > 10, "calls are told")
        node.start()


def test_a_killed_node_comes_back(frontend: RunningFrontend, node: RunningNode) -> None:
    with load(frontend) as calls:
        node.stop(signal.SIGKILL)
        wait_until(lambda: calls.answers["503"] + calls.answers["504"] > 5, "calls are told")
        node.start()


def test_no_call_fails_while_a_node_changes_its_model(frontend: RunningFrontend, node: RunningNode) -> None:
    with load(frontend, PATIENT_S) as calls:
        for _ in range(2):
            started = node.log.count("event=serving")
            node.process.send_signal(signal.SIGHUP)
            wait_until(partial(_serves_anew, node, started), "the new lane serves")
    assert set(calls.answers) == {"200"}


def test_what_a_stopping_frontend_has_accepted_is_answered(frontend: RunningFrontend) -> None:
    with load(frontend, PATIENT_S) as calls:
        assert frontend.stop() == 0
        refused = calls.answers["no connection"]
        frontend.start()
    assert calls.answers["504"] == calls.answers["503"] == 0
    assert refused >= 0
