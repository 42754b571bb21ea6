"""Process of the load, seen from the tuner."""

import select
import subprocess
import sys

import msgspec

from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.tuning.errors import TuningError
from cluster_serving.node.tuning.traffic import Begin, Order, Seen


class LoadProcess:
    """Process that carries out orders, and rings `bell` after each order."""

    def __init__(self, begin: Begin, bell: Bell) -> None:
        command = [sys.executable, "-P", "-m", "cluster_serving.node.tuning.traffic", str(bell.fileno())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(bell.fileno(),)
        )
        self._tell(begin)

    def order(self, order: Order) -> None:
        """Send an order. The bell rings when the order is done."""
        self._tell(order)

    def answered(self) -> bool:
        """Return whether the result of the order has come, or the process has ended."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def seen(self) -> Seen:
        """Return the result of the order, after `answered`.

        Raises:
            TuningError: the process has ended instead.
        """
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        line = self._process.stdout.readline()
        if not line:
            raise TuningError("the process that makes the load has ended")
        return msgspec.json.decode(line, type=Seen)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _tell(self, message: Begin | Order) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        try:
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise TuningError("the process that makes the load has ended") from error
