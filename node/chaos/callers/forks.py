"""Processes that fork."""

import os
import traceback
from random import Random

import msgspec

from cluster_serving.node.chaos.callers.caller import Caller
from cluster_serving.node.chaos.callers.tally import Tally

_CHILDREN = 2
_LOOPS = 4


class Forks(Caller):
    """Queues that have been used are used in two children of a fork, beside the parent."""

    def round(self) -> None:
        """Make calls, fork, and make calls in parent and children."""
        self._call(1)
        children = [self._fork(self.calls.random.random()) for _ in range(_CHILDREN)]
        self._call(_LOOPS)
        for pid, report in children:
            with os.fdopen(report, "rb") as stream:
                told = stream.read()
            _, status = os.waitpid(pid, 0)
            if status:
                self.tally.failed.append(f"the child of a fork ended with status {os.waitstatus_to_exitcode(status)}")
            else:
                self.tally.add(msgspec.json.decode(told, type=Tally))

    def _call(self, loops: int) -> None:
        for _ in range(loops):
            self.calls.whole_loop()

    def _fork(self, seed: float) -> tuple[int, int]:
        """Return the pid of a child, and the descriptor of a pipe for its tally."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return pid, reading
        status = 1
        try:
            self.calls.random = Random(seed)  # noqa: S311 - not for secrets
            self.calls.tally = Tally()
            self._call(_LOOPS)
            with os.fdopen(writing, "wb") as stream:
                stream.write(msgspec.json.encode(self.tally))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
