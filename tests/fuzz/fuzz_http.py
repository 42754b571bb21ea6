"""Sends malformed requests to a frontend: `python -m fuzz.fuzz_http --requests 20000 --seed 1`, in tests/.

A node with a small model, a frontend, and a Redis of their own. Fails when a request is answered with a 5xx other than 503 and 504,
when one is neither answered nor cut off in time, when the frontend's memory grows, or when good requests fail afterwards.
"""

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import psutil

from fuzz.http_requests import Routes, Sent, malformed, post
from support.models import MODELS
from support.private_redis import private_redis
from support.running_frontend import running_frontend
from support.running_node import running_node

JOB = "fuzzed"
_ANSWER_S = 30.0
_BUSY_S = 60.0  # as long as a busy machine may answer good requests too late
_PAUSE_S = 0.02
_GROWTH = 1.25
_SLOW_SENDERS_S = 5


class Outcome:
    """Outcome of the requests: how often each status came, and the requests that went wrong."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.wrong: list[str] = []

    def add(self, number: int, sent: Sent, status: str) -> None:
        """Take note of one."""
        self.statuses[status] += 1
        if status == "stuck" or (status.startswith("5") and status not in ("503", "504")):
            self.wrong.append(f"request {number} ({sent.kind}): {status}: {sent.parts[0][:300]!r}")


async def send(host: str, port: int, sent: Sent, answer_s: float = _ANSWER_S) -> str:
    """Send one; its status, `closed` when the connection was cut off, `stuck` when nothing came."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        with suppress(ConnectionError):
            for part in sent.parts:
                writer.write(part)
                await writer.drain()
                if len(sent.parts) > 1:
                    await asyncio.sleep(_PAUSE_S)
        async with asyncio.timeout(answer_s):
            return await _status(reader)
    except TimeoutError:
        return "stuck"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _status(reader: asyncio.StreamReader) -> str:
    """The status of the one response, once all of it is there."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):  # Expect: 100-continue
            head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        return head.split(b" ", 2)[1].decode()
    except (ConnectionError, asyncio.IncompleteReadError):
        return "closed"


async def fuzz(url: str, requests: int, seed: int, at_once: int = 32) -> Outcome:
    """Send that many requests; each has a seed of its own."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    routes, outcome = Routes(JOB), Outcome()
    numbers = iter(range(requests))

    async def sender() -> None:
        for number in numbers:
            sent = malformed(Random(f"{seed}-{number}"), routes)
            outcome.add(number, sent, await send(str(parts.hostname), int(parts.port or 0), sent))

    await asyncio.gather(*(sender() for _ in range(at_once)))
    for path, body in routes.bodies.items():
        if not path.endswith(":classify"):
            good, until_s = Sent("good", [post(path, body)]), time.monotonic() + _BUSY_S
            while (status := await send(str(parts.hostname), int(parts.port or 0), good)) in ("503", "504"):
                if time.monotonic() > until_s:
                    break
            if status != "200":
                outcome.wrong.append(f"a good request to {path} afterwards: {status}")
    return outcome


def memory_mb(pid: int) -> float:
    """The memory of a process and its children."""
    process = psutil.Process(pid)
    return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)]) / 1e6


def main() -> int:
    """Run it; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, private_redis(Path(directory)) as server:
        model = str(MODELS / "affine.py")
        settings = {"jobName": JOB, "requestTimeout": _SLOW_SENDERS_S}
        with (
            running_node(Path(directory) / "node", server, modelPath=model, jobName=JOB),
            running_frontend(Path(directory) / "frontend", server, **settings) as frontend,
        ):
            asyncio.run(
                fuzz(frontend.url, min(2000, options.requests), options.seed + 1)
            )  # warm: every path was taken once
            before_mb, begun_s = memory_mb(frontend.process.pid), time.monotonic()
            outcome = asyncio.run(fuzz(frontend.url, options.requests, options.seed))
            after_mb, elapsed_s = memory_mb(frontend.process.pid), time.monotonic() - begun_s
    if after_mb > _GROWTH * before_mb:
        outcome.wrong.append(f"the frontend has grown from {before_mb:.0f} to {after_mb:.0f} MB")
    print(
        f"{options.requests} requests, seed {options.seed}, {elapsed_s:.0f} s: {dict(outcome.statuses.most_common())}"
    )
    print(f"memory of the frontend {before_mb:.1f} MB before, {after_mb:.1f} MB after")
    print("\n".join(outcome.wrong[:40]) or "nothing went wrong")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
