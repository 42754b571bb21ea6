"""Way of requests to a job and of answers back, as the loop of a sending process sees it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from cluster_serving.node.load.messages import OK, Sample


class Request(NamedTuple):
    """Request on its way: number, and the seconds that are left for it."""

    number: int
    life_s: float


class Outcome(NamedTuple):
    """Answer to a request, or the reason why there is none: an error code, and a message for people."""

    number: int
    code: str = OK
    message: str = ""
    sample: Sample | None = None


class Channel(Protocol):
    """Queue of a job, or a frontend. No call waits for an answer."""

    at_once: int
    """Most requests of one call of `send`."""

    def fileno(self) -> int:
        """Return a descriptor that can be read when answers have come."""
        ...

    def send(self, requests: Sequence[Request]) -> list[Outcome]:
        """Send requests, and return the outcomes of requests that were not taken."""
        ...

    def receive(self) -> list[Outcome]:
        """Return the outcomes that have come."""
        ...

    def give_up(self, number: int) -> None:
        """Forget a request."""
        ...

    def close(self) -> None:
        """End the connections."""
        ...
