"""Threads that share queues."""

import threading

from cluster_serving.node.chaos.callers.caller import Caller

_THREADS = 3


class Threads(Caller):
    """Several threads share the queues, and one of them closes the queues beside the calls of the others."""

    def round(self) -> None:
        """Make calls in all threads."""
        threads = [threading.Thread(target=self.calls.whole_loop, daemon=True) for _ in range(_THREADS)]
        for thread in threads:
            thread.start()
        if self.calls.random.random() < 0.2:
            with self.calls.counted():
                self.calls.random.choice([self.calls.input.close, self.calls.output.close])()
        for thread in threads:
            thread.join()
