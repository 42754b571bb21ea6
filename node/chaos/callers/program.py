"""A caller as a program: `python -m cluster_serving.node.chaos.callers.program NAME KIT`.

The caller prints an empty line, makes rounds until the end of its standard input, and then prints its tally as JSON.
"""

import faulthandler
import select
import sys
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


def main() -> None:
    """Make rounds, and print the tally."""
    name, path = sys.argv[1:]
    kit = Kit.decode(Path(path).read_bytes())
    faulthandler.enable()  # the stacks of a caller that crashes, or hangs and gets SIGABRT
    caller = _CALLERS[name](name, kit)
    print(flush=True)
    caller.round()
    if caller.repeats:
        while not select.select([sys.stdin], [], [], caller.rest_s)[0]:
            caller.round()
        caller.last_round()
    sys.stdout.buffer.write(msgspec.json.encode(caller.tally))


if __name__ == "__main__":
    main()
