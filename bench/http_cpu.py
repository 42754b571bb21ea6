"""CPU time of one 128-float JSON predict: microseconds in each process, beside those of a bare handler.

Requests a second say little on a machine that other programs use too; the CPU time of a request is much the same then. At 64
connections, as in `bench.http`; `whole`: all processes together.
"""

import argparse
import os
import resource
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from bench import report
from bench.http_load import load
from bench.http_servers import REDIS_PORT, Server, bare, ours

_CONNECTIONS = 64
_PORT = 28_000
_MARK = "BENCH_HTTP_CPU"
_PARTS = {
    "frontend": "cluster_serving.frontend.server.process",
    "node": "cluster_serving.node",
    "redis": "redis-server",
    "handler": "bench.http_bare",
}


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=int, default=4, help="of each load")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ[_MARK] = str(os.getpid())  # those that are started from here inherit it
    rounds = [_cost(bare(), options.seconds) | _cost(ours(), options.seconds) for _ in range(options.rounds)]
    report.show("CPU of one predict over HTTP, microseconds", rounds)
    report.write(options.json, rounds)


def _cost(server: Server, seconds: int) -> report.Figures:
    with tempfile.NamedTemporaryFile() as body, server.running(_PORT):
        path, url = Path(body.name), f"http://127.0.0.1:{_PORT}{server.path}"
        path.write_bytes(server.body)
        server.await_ready(_PORT)
        load(url, path, _CONNECTIONS, 1)  # warm-up
        parts = _parts()
        before = _times_s(parts)
        turn = load(url, path, _CONNECTIONS, seconds)
        after = _times_s(parts)
    requests = turn.requests_per_s * seconds
    cost = {f"{server.name}.{part}": 1e6 * (after[part] - before[part]) / requests for part in after}
    return cost | {f"{server.name}.whole": sum(cost.values())}


def _parts() -> dict[psutil.Process, str]:
    """The processes that were started from here, by what they are; the node and Redis are children no more."""
    found: dict[psutil.Process, str] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            is_ours = (
                process.environ().get(_MARK) == str(os.getpid()) or f":{REDIS_PORT}" in command
            )  # Redis has no mark
            part = next((part for part, name in _PARTS.items() if name in command), None)
            if is_ours and part is not None:
                found[process] = part
    return found


def _times_s(parts: Mapping[psutil.Process, str]) -> dict[str, float]:
    """CPU time of each part so far, and of the wrks that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    times_s = dict.fromkeys(parts.values(), 0.0) | {"wrk": children.ru_utime + children.ru_stime}
    for process, part in parts.items():
        used = process.cpu_times()
        times_s[part] += used.user + used.system
    return times_s


if __name__ == "__main__":
    main()
