"""Receipt of a record: the time of each stage.

    enqueued --stream--> read --fill--> batch closed --wait--> begun --run--> ended --publish--> result on its way

All times are on Redis' clock. The enqueue time comes from the stream id, in whole milliseconds, rounded down.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from cluster_serving.client.errors import CodecError


class Receipt(NamedTuple):
    """Parts of a receipt.

    Attributes:
        entry: the record's id in the stream.
        read_ms: Unix time on Redis' clock when a reader had the record.
        deliveries: number of times that Redis gave the record to a node.
        batch: JSON, the part that is equal for all records of the batch.
    """

    entry: bytes
    read_ms: float
    deliveries: int
    batch: bytes

    def json(self) -> bytes:
        """Return the whole receipt, a JSON object."""
        again = b'"deliveries":%d,' % self.deliveries if self.deliveries > 1 else b""
        return b'{"entry":"%b","read_ms":%.3f,%b%b' % (self.entry, self.read_ms, again, self.batch[1:])


def enqueued_ms(receipt: Mapping[str, Any]) -> int:
    """Return the Unix time in ms when Redis took the record.

    Raises:
        CodecError: the receipt has no valid entry id.
    """
    try:
        return int(receipt["entry"].partition("-")[0])
    except (KeyError, AttributeError, ValueError) as error:
        raise CodecError("the receipt does not say when its record was enqueued") from error


def stages(receipt: Mapping[str, Any]) -> dict[str, float]:
    """Return the milliseconds of each stage, in order.

    Returns:
        `stream`: until a reader had the record. `fill`: until the batch was closed. `wait`: for a worker. `run`: in the worker,
        with decoding and the user's processing. `publish`: for the writer. The sum is the time from the queue to the result.

    Raises:
        CodecError: a stage is missing, because a node of another version wrote the receipt.
    """
    try:
        read_ms, filled_ms = float(receipt["read_ms"]), float(receipt["filled_ms"])
        wait_ms, run_ms, publish_ms = (float(receipt[name]) for name in ("wait_ms", "run_ms", "publish_ms"))
    except (KeyError, TypeError, ValueError) as error:
        raise CodecError(
            f"the receipt lacks a stage ({error}): was it written by a node of another version?"
        ) from error
    stream_ms, fill_ms = max(0.0, read_ms - enqueued_ms(receipt)), max(0.0, filled_ms - read_ms)
    found = {"stream": stream_ms, "fill": fill_ms, "wait": wait_ms, "run": run_ms, "publish": publish_ms}
    return {name: round(took_ms, 3) for name, took_ms in found.items()}
