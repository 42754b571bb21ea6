"""Base of every caller."""

from abc import ABC, abstractmethod
from typing import ClassVar

from cluster_serving.node.chaos.callers.calls import Calls
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally


class Caller(ABC):
    """Program with a habit, which is its round of calls.

    Attributes:
        repeats: rounds follow each other until the run ends the caller. False: a single round.
        rest_s: seconds between two rounds.
    """

    repeats: ClassVar = True
    rest_s: ClassVar = 0.05

    def __init__(self, name: str, kit: Kit) -> None:
        self.calls = Calls(name, kit)

    @property
    def tally(self) -> Tally:
        """Report of the caller."""
        return self.calls.tally

    @abstractmethod
    def round(self) -> None:
        """Make some calls."""

    def last_round(self) -> None:
        """Make a call without the habit, after all faults: the queues are still good."""
        with self.calls.counted():
            for _ in self.calls.predict():
                pass
