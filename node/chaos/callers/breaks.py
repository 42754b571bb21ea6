"""Programs that leave loops early."""

from cluster_serving.node.chaos.callers.caller import Caller


class Breaks(Caller):
    """Leaves loops over results early, and goes on with the same queues."""

    def round(self) -> None:
        """Leave a loop early."""
        last = self.calls.random.randrange(8)
        with self.calls.counted():
            for number, _ in enumerate(self.calls.any_loop()):
                if number == last:
                    self.tally.stopped += 1
                    break
