"""Answers later while Redis, the node and the frontend are killed: is each accepted call answered once, and called back?

Callers ask at a steady rate for answers later, each with a row of its own and a callback. Meanwhile one of the three is killed
every few seconds, and started again a second later. The receiver of the callbacks answers a third of the posts with an error, a
redirect to a port that must not be called, silence or a cut. One callback in 50 is for `https://localhost`, a name with a forbidden
address.
At the end each accepted call is fetched twice.
Run it by `python -m bench.later [--requests N] [--rate N] [--every S] [--seed N] [--json FILE]`. It exits with 1 unless each
accepted call has its own right answer and its callback with the same bytes, nothing is left in Redis, and no forbidden address
was called. A request whose 202 was lost with the frontend may be called back too (`called_back_unaccepted`). Redis writes to disk
before it answers (`appendfsync always`), as it must where nothing may be lost with it.
"""

import argparse
import base64
import http.client
import json
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

import numpy as np
import redis

from bench import http_model, report
from bench.http_faults import JOB, PORT, REDIS_PORT, Part, servers
from bench.http_servers import ROW
from bench.receiver import Receiver, receiver
from cluster_serving.client import keys

_KEY = bytes(range(32))
_CALLERS = 8
_FORBIDDEN_EACH = 50
_AWAY_S = 1.0
_PAUSE_S = 0.1
_PATIENCE_S = 1200.0  # a post that is refused nine times waits for 250 s, and of 10,000 some are
_FAULTS = 0.33
_TOLERANCE = 1e-4
_RATE = 200
_EVERY_S = 4.0
ALL_WELL = (
    "lost",
    "wrong",
    "changed",
    "not_called_back",
    "called_back_otherwise",
    "forged",
    "forbidden_calls",
    "left",
)


class Answer(NamedTuple):
    """Answer to a request. Status 0: nothing came."""

    status: int
    body: bytes


class Accepted(NamedTuple):
    """A call that was answered 202: its number and its id, and whether its callback is for a forbidden address."""

    number: int
    id: str
    is_forbidden: bool


def ask(method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """One request to the frontend."""
    with closing(http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)) as connection:
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, response.read())
        except (OSError, http.client.HTTPException):
            return Answer(0, b"")


class Callers:
    """Asks for answers later, at a rate, until so many requests are accepted."""

    def __init__(self, requests: int, rate: float, allowed: str, forbidden: str) -> None:
        self.accepted: list[Accepted] = []
        self.statuses: Counter[int] = Counter()
        self._requests = requests
        self._rate = rate
        self._urls = allowed, forbidden
        self._numbers = count()
        self._lock = threading.Lock()
        self._begun_s = time.monotonic()
        self._threads = [threading.Thread(target=self._call, daemon=True) for _ in range(_CALLERS)]
        for thread in self._threads:
            thread.start()

    @property
    def are_done(self) -> bool:
        """True once all requests are accepted."""
        return len(self.accepted) >= self._requests

    def _call(self) -> None:
        while True:
            with self._lock:
                if self.are_done:
                    return
                number = next(self._numbers)
            time.sleep(max(0.0, self._begun_s + number / self._rate - time.monotonic()))
            is_forbidden = number % _FORBIDDEN_EACH == 0
            headers = {"Prefer": "respond-async", "Callback": self._urls[is_forbidden]}
            reply = ask("POST", "/predict", json.dumps({"instances": [{"x": row(number)}]}), headers)
            self.statuses[reply.status] += 1
            if reply.status == 202:
                self.accepted.append(Accepted(number, json.loads(reply.body)["id"], is_forbidden))
            else:
                time.sleep(_PAUSE_S)


def row(number: int) -> list[float]:
    """The row of a request, unlike all others."""
    return [number / 1000, *ROW[1:].tolist()]


def is_right(number: int, body: bytes) -> bool:
    """Return whether a body is the answer to a request."""
    x = np.array([row(number)], np.float32)
    prediction = json.loads(json.loads(json.loads(body)["predictions"][0])["value"])
    return bool(np.allclose(prediction["data"], http_model.Model().predict({"x": x})["y"][0], atol=_TOLERANCE))


def run(requests: int, rate: float, every_s: float, seed: int, timeout_s: float = 10) -> dict[str, float]:
    """Run, and return the figures.

    Args:
        requests: number of calls to be accepted.
        rate: requests a second.
        every_s: seconds from a start to the next kill.
        seed: seed of the receiver's faults.
        timeout_s: seconds that the frontend waits for the receiver, which hangs for a little longer.
    """
    secret = f"whsec_{base64.b64encode(_KEY).decode()}"
    with (
        tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as home,
        _forbidden() as (port, called),
        receiver(_KEY, f"http://127.0.0.1:{port}/", _FAULTS, 1.5 * timeout_s, seed) as hooks,
        servers(
            Path(home),
            "--appendfsync",
            "always",
            callbackSecret=secret,
            callbackHosts=[f"127.0.0.1:{hooks.server_port}"],
            callbackTimeout=timeout_s,
            laterPerKey=2 * requests,
        ) as parts,
    ):
        callers = Callers(requests, rate, hooks.url, f"https://localhost:{port}/")
        kills = _kill_until(callers, parts, every_s)
        figures = _results(callers, hooks)
        return figures | {
            "accepted": len(callers.accepted),
            "refused": sum(callers.statuses.values()) - len(callers.accepted),
            "kills": kills,
            "forbidden_calls": len(called),
            **{f"posts.{outcome}": number for outcome, number in sorted(hooks.posts.items())},
            "forged": hooks.posts["forged"],
        }


def _kill_until(callers: Callers, parts: Mapping[str, Part], every_s: float) -> int:
    """Kill one after the other until all requests are accepted, and each has been killed once; the number of kills."""
    kills = 0
    for part in cycle(parts.values()):
        if callers.are_done and kills >= len(parts):
            return kills
        time.sleep(every_s)
        part.end(signal.SIGKILL)
        time.sleep(_AWAY_S)
        part.start()
        kills += 1
    return kills


def _results(callers: Callers, hooks: Receiver) -> dict[str, float]:
    """Fetch each result twice, and wait for its callback."""
    lost = wrong = changed = 0
    answers: dict[str, bytes] = {}
    for each in callers.accepted:
        first = ask("GET", f"/results/{each.id}?wait=30")
        if first.status != 200:
            lost += 1
            print(f"{each.id}: {first.status} {first.body[:300]!r}", file=sys.stderr)
            continue
        answers[each.id] = first.body
        wrong += not is_right(each.number, first.body)
        changed += ask("GET", f"/results/{each.id}") != first
    awaited = [f"{each.id.partition('-')[0]}-1" for each in callers.accepted if not each.is_forbidden]
    until_s = time.monotonic() + _PATIENCE_S
    with closing(redis.Redis(port=REDIS_PORT)) as client:
        while time.monotonic() < until_s and (
            any(message not in hooks.taken for message in awaited) or client.zcard(keys.CALLBACKS)
        ):
            time.sleep(0.2)
        left = client.xlen(JOB) + client.zcard(keys.CALLBACKS)
    by_message = {f"{call.partition('-')[0]}-1": body for call, body in answers.items()}
    return {
        "lost": lost,
        "wrong": wrong,
        "changed": changed,
        "not_called_back": sum(message not in hooks.taken for message in awaited),
        "called_back_otherwise": sum(
            by_message.get(message, body) != body for message, (body, _) in hooks.taken.items()
        ),
        "called_back_unaccepted": len(hooks.taken.keys() - by_message.keys()),
        "left": left,
    }


@contextmanager
def _forbidden() -> Generator[tuple[int, list[str]]]:
    """A port that must not be called, and the callers that called it nevertheless."""
    called: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        ended = threading.Event()

        def listen() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    connection, address = listener.accept()
                    connection.close()
                    called.append(str(address))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield listener.getsockname()[1], called
        finally:
            ended.set()
            thread.join()


def main() -> int:
    """Run, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=_RATE, help="requests a second")
    parser.add_argument("--every", type=float, default=_EVERY_S, help="seconds from a start to the next kill")
    parser.add_argument("--seed", type=int, default=0, help="of the faults of the receiver")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    begun_s = time.monotonic()
    figures = run(options.requests, options.rate, options.every, options.seed)
    figures["seconds"] = time.monotonic() - begun_s
    report.show_once("answers later", figures, f"{_CALLERS} callers, Redis, node and frontend killed by turns")
    report.write(options.json, [figures])
    return int(any(figures[name] for name in ALL_WELL) or figures["accepted"] < options.requests)


if __name__ == "__main__":
    sys.exit(main())
