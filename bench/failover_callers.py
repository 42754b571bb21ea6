"""Callers of every kind for `bench.failover`: programs that run, programs that start, HTTP, and records with results apart."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from typing import Any

import numpy as np
import redis

from bench.failover_servers import HTTP_PORT, JOB, URL
from cluster_serving.client import ClusterServingError, InputQueue, OutputQueue

_LIFE_S = 10.0
_PAUSE_S = 0.01
_PROGRAM_EVERY_S = 0.25
_PROGRAMS_AT_ONCE = 20
_DRAIN_S = 20.0


class Caller(threading.Thread):
    """Calls again and again until `stop`.

    Attributes:
        answered_s: when each right answer came, on the monotonic clock.
        failed: calls that failed.
        wrong: answers of a wrong value.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.answered_s: list[float] = []
        self.failed = self.wrong = 0
        self.stopping = threading.Event()

    def stop(self) -> None:
        """End after the call that is under way."""
        self.stopping.set()
        self.join()

    def gap_s(self, since_s: float, until_s: float) -> float:
        """Return the longest time without a right answer."""
        within = [since_s, *(when for when in sorted(self.answered_s) if since_s <= when <= until_s), until_s]
        return float(np.diff(within).max())

    def note(self, number: int, answer: Any) -> None:
        """Count an answer."""
        if float(np.asarray(answer).flat[0]) == 2 * number + 1:
            self.answered_s.append(time.monotonic())
        else:
            self.wrong += 1


class Running(Caller):
    """A program that runs all the time, with one queue."""

    def run(self) -> None:
        """Predict, one record at a time."""
        number = 0
        with InputQueue(url=URL, name=JOB) as queue:
            while not self.stopping.wait(_PAUSE_S):
                number += 1
                try:
                    self.note(number, queue.predict(row(number), _LIFE_S))
                except ClusterServingError:
                    self.failed += 1


class Http(Caller):
    """An HTTP client that keeps its connection, and comes again when it is told 503."""

    def run(self) -> None:
        """Predict, one record at a time."""
        number = 0
        with closing(http.client.HTTPConnection("127.0.0.1", HTTP_PORT, timeout=2 * _LIFE_S)) as connection:
            while not self.stopping.wait(_PAUSE_S):
                number += 1
                body = json.dumps({"instances": [row(number)["x"].tolist()]})
                try:
                    connection.request("POST", f"/v1/models/{JOB}:predict", body, {"X-Request-Timeout": str(_LIFE_S)})
                    response = connection.getresponse()
                    text = response.read()
                except (OSError, http.client.HTTPException):
                    connection.close()
                    self.failed += 1
                    continue
                if response.status == 200:
                    self.note(number, json.loads(text)["predictions"][0])
                else:
                    self.failed += 1


class Starting(Caller):
    """Programs that have just been started: a process for each call, which has learned nothing from the calls before."""

    def run(self) -> None:
        """Start a program every quarter of a second, as long as not too many wait."""
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        answers: Any = context.SimpleQueue()
        programs: list[Any] = []
        number = 0
        while not self.stopping.wait(_PROGRAM_EVERY_S):
            programs = [each for each in programs if each.is_alive()]
            if len(programs) < _PROGRAMS_AT_ONCE:
                number += 1
                programs.append(context.Process(target=_program, args=(number, answers), daemon=True))
                programs[-1].start()
            self._take(answers)
        for each in programs:
            each.join(2 * _LIFE_S)
            each.kill()
        self._take(answers)

    def _take(self, answers: Any) -> None:
        while not answers.empty():
            right, when_s = answers.get()
            if right:
                self.answered_s.append(when_s)
            elif right is None:
                self.failed += 1
            else:
                self.wrong += 1


def _program(number: int, answers: Any) -> None:
    right = None
    try:
        with InputQueue(url=URL, name=JOB) as queue:
            right = float(np.asarray(queue.predict(row(number), _LIFE_S)).flat[0]) == 2 * number + 1
    except ClusterServingError:
        pass
    answers.put((right, time.monotonic()))


class Records(Caller):
    """A program that enqueues records, and threads that take the results and look how far the replicas have come.

    Args:
        copied: writes to the first master, and tells whether both replicas have all from before.

    Attributes:
        accepted: numbers of the records that Redis has taken, in order.
        safe: how many of them both replicas had.
    """

    def __init__(self, copied: Callable[[], bool]) -> None:
        super().__init__()
        self.accepted: list[int] = []
        self.safe = 0
        self._copied = copied
        self._answered: set[int] = set()
        self._drained = threading.Event()
        self._others = [threading.Thread(target=target, daemon=True) for target in (self._results, self._look)]

    def run(self) -> None:
        """Enqueue numbered records."""
        for other in self._others:
            other.start()
        number = 0
        with InputQueue(url=URL, name=JOB) as queue:
            while not self.stopping.wait(_PAUSE_S):
                number += 1
                try:
                    queue.enqueue(str(number), **row(number))
                except ClusterServingError:
                    self.failed += 1
                else:
                    self.accepted.append(number)

    def stop(self) -> None:
        """End, and wait for the results."""
        super().stop()
        deadline_s = time.monotonic() + _DRAIN_S
        while self._answered < set(self.accepted) and time.monotonic() < deadline_s:
            time.sleep(_PAUSE_S)
        self._drained.set()
        for other in self._others:
            other.join()

    @property
    def lost(self) -> list[int]:
        """Records that were accepted, and never answered."""
        return [number for number in self.accepted if number not in self._answered]

    @property
    def lost_safe(self) -> int:
        """Number of lost records that both replicas had."""
        return len(set(self.lost) & set(self.accepted[: self.safe]))

    def _results(self) -> None:
        with OutputQueue(url=URL, name=JOB) as output:
            while not self._drained.wait(_PAUSE_S):
                try:
                    results = output.dequeue()
                except ClusterServingError:
                    continue
                for uri, answer in results.items():
                    self._answered.add(int(uri))
                    self.note(int(uri), answer)

    def _look(self) -> None:
        while not self.stopping.wait(_PAUSE_S):
            count = len(self.accepted)
            try:
                if not self._copied():
                    continue
            except redis.RedisError:
                continue
            self.safe = count


def row(number: int) -> dict[str, Any]:
    """Return the inputs of a numbered record."""
    return {"x": np.array([number, 0], np.float32)}
