"""A client in a process of its own, so that its CPU time is told apart and its pauses are not those of whoever measures."""

from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context

from bench.arrivals import Times
from bench.http_client import HttpClient
from bench.load import Client, Closed, Trace, closed_loop, open_loop
from bench.queue_client import QueueClient


@dataclass(frozen=True)
class Target:
    """Job that a load goes to; `port`: of Redis for "queue", of the frontend for "http"; `content`: one of `records.RECORDS`."""

    over: str
    port: int
    job: str
    content: str

    def connect(self) -> Client:
        """A client of it."""
        kind = QueueClient if self.over == "queue" else HttpClient
        return kind(self.port, self.job, self.content)


class Driver:
    """Loads that run in another process."""

    def __init__(self, process: ProcessPoolExecutor) -> None:
        self._process = process

    def closed(self, target: Target, window: int, seconds: float) -> Closed:
        """`load.closed_loop`."""
        return self._process.submit(_closed, target, window, seconds).result()

    def open(self, target: Target, due_s: Times, deadline_s: float | None = None) -> Trace:
        """`load.open_loop`."""
        return self._process.submit(_open, target, due_s, deadline_s).result()


@contextmanager
def driver() -> Generator[Driver]:
    """The process, while the block lasts."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield Driver(process)


def _closed(target: Target, window: int, seconds: float) -> Closed:
    with closing(target.connect()) as client:
        return closed_loop(client, window, seconds)


def _open(target: Target, due_s: Times, deadline_s: float | None) -> Trace:
    with closing(target.connect()) as client:
        return open_loop(client, due_s, deadline_s)
