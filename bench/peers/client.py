"""The client of `bench.peers`: the loads of `bench.load` on any server, the same request again and again."""

from contextlib import closing

import numpy as np

from bench.arrivals import Times
from bench.http_client import HttpClient
from bench.http_servers import Server, Unfit
from bench.latency import fell_behind, latencies_s
from bench.load import closed_loop, open_loop
from bench.report import Figures


class ServerClient(HttpClient):
    """An `HttpClient` that asks what this server is asked."""

    def __init__(self, server: Server, port: int) -> None:
        super().__init__(port, "", "jpeg")
        head = {"Host": "127.0.0.1", "Content-Length": len(server.body), **server.headers}
        lines = [f"POST {server.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
        self._whole = "\r\n".join([*lines, "", ""]).encode() + server.body

    def _request(self, number: int, life_s: float | None) -> bytes:
        return self._whole


def warm_up(server: Server, port: int, records: int) -> None:
    """Ask for so many at once, and do not look at the answers: some processes of the server may still be starting."""
    with closing(ServerClient(server, port)) as client:
        open_loop(client, np.zeros(records))


def in_closed_loop(server: Server, port: int, connections: int, seconds: float) -> float:
    """Answers a second when each connection asks again as soon as it has one.

    Raises:
        Unfit: a request failed.
        SystemExit: too few were answered.
    """
    with closing(ServerClient(server, port)) as client:
        closed = closed_loop(client, connections, seconds)
    if closed.failed:
        raise Unfit(f"{server.name} failed {closed.failed} of {closed.answered} requests.")
    return closed.rate_per_s


def in_open_loop(server: Server, port: int, due_s: Times) -> Figures:
    """Requests are sent when they are due, and their latencies count from then.

    Raises:
        Unfit: a request failed, or the client fell behind.
    """
    with closing(ServerClient(server, port)) as client:
        trace = open_loop(client, due_s)
    failed = sum(bool(answer.error) for answer in trace.answers) + len(due_s) - len(trace.answers)
    if fell_behind(trace):
        raise Unfit(f"The client fell behind, when it asked {server.name}: this machine is too busy.")
    if failed:
        raise Unfit(f"{server.name} failed {failed} of {len(due_s)} requests.")
    found_ms = 1000 * latencies_s(trace)
    return {f"p{share}_ms": float(found_ms[found_ms.size * share // 100]) for share in (50, 99)}
