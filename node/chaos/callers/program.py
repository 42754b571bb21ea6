"""A caller as a program: `python -m cluster_serving.node.chaos.callers.program NAME KIT`.

The caller makes rounds until SIGTERM, and then prints its tally as JSON.
"""

import faulthandler
import pickle
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from cluster_serving.node.chaos.callers.breaks import Breaks
from cluster_serving.node.chaos.callers.caller import Caller
from cluster_serving.node.chaos.callers.cancels import Cancels
from cluster_serving.node.chaos.callers.forks import Forks
from cluster_serving.node.chaos.callers.harvest import Harvest
from cluster_serving.node.chaos.callers.interrupts import Interrupts
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.pauses import Pauses
from cluster_serving.node.chaos.callers.threads import Threads

_CALLERS: Final[Mapping[str, type[Caller]]] = {
    "threads": Threads,
    "forks": Forks,
    "pauses": Pauses,
    "breaks": Breaks,
    "interrupts": Interrupts,
    "cancels": Cancels,
    "harvest": Harvest,
}


class _Over:
    """Whether the run has ended the caller."""

    told = False

    def tell(self, *_: object) -> None:
        """Note the end. A signal handler."""
        self.told = True


def main() -> None:
    """Make rounds, and print the tally."""
    name, path = sys.argv[1:]
    kit: Kit = pickle.loads(Path(path).read_bytes())  # noqa: S301 - written by the run
    faulthandler.enable()  # the stacks of a caller that crashes, or hangs and gets SIGABRT
    over = _Over()
    signal.signal(signal.SIGTERM, over.tell)
    caller = _CALLERS[name](name, kit)
    if caller.repeats:
        while not over.told:
            caller.round()
            time.sleep(caller.rest_s)
        caller.last_round()
    else:
        caller.round()
    sys.stdout.buffer.write(msgspec.json.encode(caller.tally))


if __name__ == "__main__":
    main()
