"""Programs that take their time."""

import time

from cluster_serving.client.protocol import reply_stream
from cluster_serving.node.chaos import pace
from cluster_serving.node.chaos.callers.caller import Caller
from cluster_serving.node.chaos.callers.kit import Kit


class Pauses(Caller):
    """Pauses in a loop over results, or in the source of the requests, for longer than the reply stream lives."""

    def __init__(self, name: str, kit: Kit) -> None:
        reply_stream.LIFE_S = pace.REPLY_LIFE_S  # a minute otherwise, which is too long a pause for a run
        super().__init__(name, kit)

    def round(self) -> None:
        """Loop over results with one pause."""
        calls, random = self.calls, self.calls.random
        calls.source_pause_s = pace.PAUSE_S if random.random() < 0.3 else 0.0
        loop = (
            calls.predict_many() if calls.source_pause_s else random.choice([calls.predict_many, calls.as_completed])()
        )
        with calls.counted():
            for number, _ in enumerate(loop):
                if number == 0 and not calls.source_pause_s:
                    time.sleep(pace.PAUSE_S)
