"""A client that keeps a node busy, and looks at what it gets."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np

from cluster_serving.client import InputQueue
from support.private_redis import PrivateRedis

_BURST = 40
_PAUSE_S = 0.05  # between bursts: the cores are for what is tested


class Caller:
    """Asks `affine.py` again and again, a burst at a time, and looks at every answer."""

    def __init__(self, server: PrivateRedis, job: str) -> None:
        self._server, self._job = server, job
        self.answers = 0
        self.workers: set[int] = set()
        """The numbers of those that have answered."""
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with InputQueue(port=self._server.port, name=self._job) as queue:
                while not self._stop.is_set():
                    self._ask(queue)
                    self._stop.wait(_PAUSE_S)
        except BaseException as error:
            self.failure = error

    def _ask(self, queue: InputQueue) -> None:
        rows = {f"record-{self.answers + at}": np.full(4, self.answers + at, np.float32) for at in range(_BURST)}
        for result in queue.as_completed([(uri, {"x": row}) for uri, row in rows.items()]):
            row = rows.pop(result.uri)
            assert result.error is None, result.error
            assert result.outputs["y"].tolist() == (2 * row + 1).tolist()
            assert result.receipt is not None
            self.workers.add(result.receipt.worker)
        assert not rows
        self.answers += _BURST

    def more(self) -> Callable[[], bool]:
        """Return a function that tells whether some bursts that begin from now on are answered, or a call has failed."""
        wanted = self.answers + 3 * _BURST
        return lambda: self.failure is not None or self.answers >= wanted

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    @property
    def finished(self) -> bool:
        """End of the calls: whether the last one is answered or has failed."""
        return not self._thread.is_alive()


@contextmanager
def calling(server: PrivateRedis, job: str) -> Generator[Caller]:
    """A caller for a block."""
    caller = Caller(server, job)
    try:
        yield caller
    finally:
        caller.stop()
