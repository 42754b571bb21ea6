"""Slow record of the last hour, as a node keeps it for people."""

import msgspec

from cluster_serving.client.wire.receipt import Receipt


class SlowRecord(msgspec.Struct, frozen=True):
    """Record that was the slowest of some seconds.

    Attributes:
        at_ms: Unix time in ms when its result was published.
        took_ms: milliseconds from its enqueueing until its result was published.
        uri: name of the record.
        receipt: its receipt.
    """

    at_ms: int
    took_ms: float
    uri: str
    receipt: Receipt

    def encode(self) -> bytes:
        """Return the JSON object, with `at_ms` first."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> "SlowRecord":
        """Return the slow record of a JSON object.

        Raises:
            msgspec.MsgspecError: it is no slow record of this version.
        """
        return msgspec.json.decode(content, type=cls)
