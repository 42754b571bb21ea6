"""Sending processes, seen from the command."""

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec

from cluster_serving.node.load.messages import Order, Tick

_END_S = 2.0
_ENDED = "a sending process has ended"


class Heard(NamedTuple):
    """Tick of the sending process with a number. None: the process has ended."""

    process: int
    tick: Tick | None


class SendingProcesses:
    """Processes that carry out an order each, until the block ends."""

    def __init__(self, orders: list[Order]) -> None:
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._orders = orders

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-m", "cluster_serving.node.load.sender"]
        for number, order in enumerate(self._orders):
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._processes.append(process)
            stdin, stdout = process.stdin, process.stdout
            assert stdin is not None  # noqa: S101 - a pipe
            assert stdout is not None  # noqa: S101 - a pipe
            threading.Thread(target=self._listen, args=(number, stdout), daemon=True).start()
            stdin.write(msgspec.json.encode(order) + b"\n")
            stdin.flush()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None  # noqa: S101 - a pipe
            process.stdin.close()
        for process in self._processes:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def ticks(self) -> Iterator[tuple[int, Tick]]:
        """Yield each tick as it comes, with the number of its process.

        The tick of a process that has ended has an error.
        """
        while True:
            number, tick = self._heard.get()
            yield number, tick if tick is not None else Tick(0.0, 0.0, error=_ENDED)

    def _listen(self, number: int, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._heard.put(Heard(number, msgspec.json.decode(line, type=Tick)))
        self._heard.put(Heard(number, None))
