"""Programs that call in a closed loop, by `predict` and by HTTP, and count what fails.

A balancer before the frontends would send a connection that is refused, or not answered within a second, to another host; so does
the caller. Anything that goes wrong on a connection that was made is a failure, and nothing of it is tried again.
"""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from cluster_serving.client import ClusterServingError, InputQueue
from cluster_serving.client.keys import DEFAULT_JOB
from support.wait import wait_until

_CONNECT_S: Final = 1.0
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.05

Ask = Callable[[float, int], Sequence[float]]
"""Sends a row (seconds, number); gives the row (number, version) of the answer."""


class Failed(Exception):
    """A call failed: `kind` in a word, `str()` with what was said."""

    def __init__(self, kind: str, said: str) -> None:
        super().__init__(f"{kind}: {said}")
        self.kind = kind


class Callers:
    """Threads that call one after the other; for a block.

    Attributes:
        answered: how many calls each version of the model has answered.
        failures: of the others what was said, by kind.
    """

    def __init__(self, ask: Ask, *, threads: int, seconds: float) -> None:
        self.answered: Counter[int] = Counter()
        self.failures: dict[str, list[str]] = {}
        self.slowest_s = 0.0
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._call_until_over, args=(first, threads), daemon=True)
            for first in range(threads)
        ]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cease()

    def cease(self) -> None:
        """Call no more, when what is under way has ended."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def await_answers(self, count: int, timeout_s: float = 120.0) -> None:
        """Wait until so many more calls were answered."""
        wanted = self.answered.total() + count
        wait_until(lambda: self.answered.total() >= wanted, f"{count} more answers", timeout_s)

    @property
    def failed(self) -> list[str]:
        """Messages of the calls that failed, one for each call."""
        return [said for each in self.failures.values() for said in each]

    def _call_until_over(self, number: int, step: int) -> None:
        while not self._over.wait(_PAUSE_S):
            number += step
            begun_s = time.monotonic()
            try:
                echo, version = self._ask(self._seconds, number)
                if echo != number:
                    raise Failed("wrong", f"{number} was answered {echo}")
            except Failed as failure:
                with self._lock:
                    self.failures.setdefault(failure.kind, []).append(str(failure))
            else:
                with self._lock:
                    self.answered[int(version)] += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - begun_s)


def by_client(queue: InputQueue) -> Ask:
    """Calls of `predict`."""

    def ask(seconds: float, number: int) -> Sequence[float]:
        try:
            answer = queue.predict({"x": np.array([seconds, number], np.float32)}, timeout=_PATIENCE_S)
        except ClusterServingError as error:
            raise Failed(type(error).__name__, str(error)) from error
        return [float(each) for each in answer]

    return ask


def by_http(places: Sequence[tuple[str, int]]) -> Ask:
    """POST requests, each over a connection of its own to the next of these places that lets it connect."""

    def ask(seconds: float, number: int) -> Sequence[float]:
        body = json.dumps({"instances": [{"x": [seconds, number]}]})
        connection = _connected(places, number)
        try:
            connection.request("POST", f"/v1/models/{DEFAULT_JOB}:predict", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise Failed("broken", f"{connection.host}: {error!r}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise Failed(str(response.status), text)
        answer: list[float] = json.loads(text)["predictions"][0]
        return answer

    return ask


def _connected(places: Sequence[tuple[str, int]], first: int) -> http.client.HTTPConnection:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        for offset in range(len(places)):
            host, port = places[(first + offset) % len(places)]
            connection = http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
            try:
                connection.connect()
            except OSError:
                connection.close()
                continue
            connection.sock.settimeout(_PATIENCE_S)
            return connection
        time.sleep(_PAUSE_S)
    raise Failed("no frontend", f"none let a caller connect for {_PATIENCE_S:g} s")
