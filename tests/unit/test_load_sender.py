"""Loop of a sending process, on a channel that serves in the test's own process."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.load.channel import Outcome, Request
from cluster_serving.node.load.messages import OK, HttpTarget, Order, Tick
from cluster_serving.node.load.sender import TIMED_OUT, Sender


class Server:
    """Answers each request after a time, in order, but none while it stalls, nor more than it has room for.

    `stalls_s`: begin and end of the stall, in seconds from the first request on.
    """

    at_once = 8

    def __init__(self, takes_s: float = 0.001, stalls_s: tuple[float, float] = (0, 0), room: int = 1000) -> None:
        self._begun_s = 0.0
        self._takes_s, self._stalls_s, self._room = takes_s, stalls_s, room
        self._answers: list[Outcome] = []
        self._lock = threading.Lock()
        self._reading, self._writing = os.pipe()
        self._under_way = 0
        self.most_under_way = 0
        self.given_up: list[int] = []
        self.lives_s: list[float] = []

    def fileno(self) -> int:
        """One end of a pipe."""
        return self._reading

    def send(self, requests: Sequence[Request]) -> list[Outcome]:
        """Take as many as there is room for."""
        with self._lock:
            room = self._room - self._under_way
            taken, others = requests[:room], requests[room:]
            self._under_way += len(taken)
            self.most_under_way = max(self.most_under_way, self._under_way)
        if not self.lives_s:
            self._begun_s = time.monotonic()
        self.lives_s += [request.life_s for request in requests]
        start_s, end_s = self._stalls_s
        now_s = time.monotonic() - self._begun_s
        takes_s = end_s - now_s if start_s <= now_s < end_s else self._takes_s
        if taken and takes_s < 1000:
            timer = threading.Timer(takes_s, self._answer, [[Outcome(request.number) for request in taken]])
            timer.daemon = True
            timer.start()
        return [Outcome(request.number, "QueueFull", "no room") for request in others]

    def receive(self) -> list[Outcome]:
        """All answers that there are."""
        os.read(self._reading, 1 << 16)
        with self._lock:
            found, self._answers = self._answers, []
            self._under_way -= len(found)
        return found

    def give_up(self, number: int) -> None:
        """Note it."""
        with self._lock:
            self._under_way -= 1
        self.given_up.append(number)

    def close(self) -> None:
        """Keep the pipe: an answer may still be on its way."""

    def _answer(self, outcomes: list[Outcome]) -> None:
        with self._lock:
            self._answers += outcomes
        os.write(self._writing, b"!")


def load(
    server: Server, ticks: int, enough: Callable[[list[Tick]], bool] = lambda _: True, **order: float
) -> list[Tick]:
    """Run a sender for at least so many ticks, and until it has told enough; return the ticks."""
    asked = {"connections": 4, "rate": 0.0, "timeout_s": 30.0, "life_s": 30.0} | order
    target = HttpTarget("http://localhost", "/", None, [])
    reading, writing = os.pipe()
    told: list[Tick] = []
    ended = False

    def tell(tick: Tick) -> None:
        nonlocal ended
        told.append(tick)
        if not ended and len(told) >= ticks and enough(told):
            ended = True
            os.close(writing)

    stop: BinaryIO
    with os.fdopen(reading, "rb") as stop:
        connections = int(asked["connections"])
        Sender(
            Order(target, connections, asked["rate"], "fixed", 0, asked["timeout_s"], asked["life_s"]),
            server,
            stop,
            tell,
        ).run()
    return told


def took_s(told: list[Tick], code: str = OK) -> NDArray[np.float64]:
    parts = [
        np.frombuffer(tick.done_s[code], np.float64) - np.frombuffer(tick.due_s[code], np.float64)
        for tick in told
        if code in tick.done_s
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def test_a_closed_loop_keeps_so_many_under_way() -> None:
    server = Server()

    told = load(server, 2, lambda told: took_s(told).size > 8, connections=4)

    assert server.most_under_way == 4
    assert took_s(told).size > 8
    assert (took_s(told) >= 0.001).all()
    assert max(tick.under_way for tick in told) <= 4


def test_a_stall_of_the_server_makes_all_that_is_due_meanwhile_late() -> None:
    """A client that waited for each answer would have one slow call, and a hundred that it never made."""
    told = load(Server(stalls_s=(0.1, 0.4)), 4, rate=500, connections=1000)

    late = took_s(told)[took_s(told) > 0.02]
    assert late.size >= 100
    assert late.max() >= 0.25


def test_requests_without_a_free_connection_wait_and_are_late() -> None:
    told = load(Server(takes_s=0.05), 3, lambda told: took_s(told).size > 8, rate=200, connections=1)

    assert told[-1].unsent > 50
    assert told[-1].oldest_s > 0.4
    assert told[-1].late_s > 0.3
    assert took_s(told).max() > 0.3


def test_the_time_that_a_request_waited_is_taken_from_its_life() -> None:
    server = Server(takes_s=0.05)

    load(server, 3, lambda _: server.lives_s[-1] == 0, rate=200, connections=1, life_s=4)

    assert server.lives_s[0] > 1
    assert server.lives_s[-1] == 0


def test_a_full_queue_is_an_error_and_is_not_asked_all_the_time() -> None:
    told = load(Server(takes_s=0.05, room=1), 3, lambda told: took_s(told).size > 3, connections=4)

    refused = took_s(told, "QueueFull").size
    assert 3 <= refused <= 4 * (1 + (told[-1].until_s - told[0].since_s) / 0.02)
    assert told[0].messages == {"QueueFull": "no room"}
    assert took_s(told).size > 3


def test_a_request_that_is_never_answered_is_given_up() -> None:
    server = Server(takes_s=1000)

    told = load(server, 3, connections=2, timeout_s=0.3)

    assert took_s(told, TIMED_OUT).size >= 2
    assert server.given_up[:2] == [0, 1]
    assert took_s(told).size == 0
