"""A program whose calls are interrupted: by a timer whose handler raises an exception, at random instants.

Run as a process of its own by `bench.interrupts`, which gets the counts as JSON:
`python -m bench.interrupted PORT JOB SECONDS CALLS SEED`.
Two threads beside the interrupted one use the same queues.
"""

import asyncio
import faulthandler
import json
import logging
import math
import os
import signal
import sys
import threading
import time
from collections import Counter
from random import Random

from bench.checked_calls import KEPT, Asyncio, Records, Threads, Wrong, kept, row
from cluster_serving.client import ConnectionLost, InputQueue, OutputQueue

_SHORTEST_S, _LONGEST_S = 2e-5, 5e-3
_PATIENCE_S = 10.0
_THREADS = 2


class Interrupted(KeyboardInterrupt):
    """Raised by the handler, as `KeyboardInterrupt` by that of Ctrl-C: asyncio knows no other exception of a handler."""


class Program:
    """Interrupted calls of all queues in the main thread, and other threads beside them.

    asyncio does not survive each interrupt: an exception may fall between a callback that is due and its call. Then, after any
    error, loop and queues are replaced. The queues for threads have to survive all.
    """

    def __init__(self, port: int, job: str, seed: int) -> None:
        self._address = port, job
        self._random = Random(seed)
        self._records = Records()
        self._threads = Threads(port, job, self._records)
        self._asyncio = Asyncio(port, job, self._records)
        self._over = threading.Event()
        self.counts: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()

    def run(self, seconds: float, calls: int) -> None:
        """Call and interrupt for so long, or so often."""
        self._keep()
        signal.signal(signal.SIGALRM, _interrupt)
        threads = [threading.Thread(target=self._call_beside, args=(Random(n),), daemon=True) for n in range(_THREADS)]
        for thread in threads:
            thread.start()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and self.counts["calls"] < calls:
            self._call()
        self._over.set()
        for thread in threads:
            thread.join(_PATIENCE_S)
            self.troubles["a thread hangs"] += thread.is_alive()

    def _keep(self) -> None:
        """Have the records of `KEPT` answered."""
        port, job = self._address
        with InputQueue(port=port, name=kept(job)) as queue, OutputQueue(port=port, name=kept(job)) as output:
            queue.enqueue_many((f"u{number}", {"t": row(number)}) for number in KEPT)
            while any(output.query(f"u{number}") == "[]" for number in KEPT):
                time.sleep(0.01)

    def _call(self) -> None:
        """Make one call of all, interrupted or in peace."""
        calls = self._threads.calls()
        on_threads = self._random.random() < 0.8
        call = self._random.choice(calls if on_threads else self._asyncio.calls())
        wait_s = math.exp(self._random.uniform(math.log(_SHORTEST_S), math.log(_LONGEST_S)))
        if self._random.random() < 0.1:
            wait_s = 0  # in peace
        self.counts["calls"] += 1
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, wait_s)
                call(self._random)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            self.counts["interrupted"] += 1
        except Wrong as wrong:
            self.troubles[f"wrong: {wrong}"] += 1
        except Exception as error:
            if on_threads:
                self.troubles[f"{type(error).__name__}: {error}"] += 1
            else:
                self.counts["event loops replaced"] += 1
                asyncio.set_event_loop(None)
                asyncio._set_running_loop(None)
                self._asyncio = Asyncio(*self._address, self._records)

    def _call_beside(self, random: Random) -> None:
        calls = self._threads.calls_beside()
        while not self._over.is_set():
            self.counts["calls beside"] += 1
            try:
                random.choice(calls)(random)
            except ConnectionLost:  # its connection was closed, because a call was interrupted in the middle of a reply
                self.counts["connections lost beside"] += 1
            except Exception as error:
                self.troubles[f"beside: {type(error).__name__}: {error}"] += 1


def _interrupt(*_: object) -> None:
    raise Interrupted


def main() -> None:
    """Run, and print counts and troubles as JSON."""
    port, job, seconds, calls, seed = sys.argv[1:]
    sys.setswitchinterval(1e-4)
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds) + 6 * _PATIENCE_S, exit=True)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    program = Program(int(port), job, int(seed))
    program.run(float(seconds), int(calls))
    print(json.dumps({"counts": program.counts, "troubles": +program.troubles}), flush=True)
    os._exit(0)  # threads of event loops that were left behind would be waited for


if __name__ == "__main__":
    main()
