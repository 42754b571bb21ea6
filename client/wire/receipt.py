"""Receipt of a record: node, model and batch of the record, and the time of each stage.

    enqueued --stream--> read --fill--> batch closed --wait--> begun --run--> ended --publish--> result on its way

All times are on Redis' clock. The enqueue time comes from the stream id, in whole milliseconds, rounded down.

A result hash holds the whole receipt, one JSON object. An entry of a reply stream holds the part of the batch once for all results
of the entry, and each result its own part (wire/reply.py). The client joins the two parts when a program asks for the receipt.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from cluster_serving.client.errors import CodecError

_encode = msgspec.json.Encoder().encode
_Part = TypeVar("_Part", bound="BatchReceipt")


class BatchReceipt(msgspec.Struct, frozen=True):
    """Part of a receipt that is equal for all records of a batch.

    Attributes:
        node: name of the node.
        model: fingerprint of the model.
        ttl_ms: milliseconds for which Redis keeps a result hash, 0 for ever.
        worker: number of the worker that ran the batch.
        batch: number of rows in the batch. 0 when every record was refused.
        filled_ms: Unix time in ms when the batch was closed.
        wait_ms: milliseconds until a worker began with the batch.
        run_ms: milliseconds in the worker, with decoding and the user's processing.
        publish_ms: milliseconds from the end of the run until the writer began to publish.
    """

    node: str
    model: str
    ttl_ms: int
    worker: int
    batch: int
    filled_ms: float
    wait_ms: float
    run_ms: float
    publish_ms: float

    def of_record(
        self, entry: bytes, read_ms: float, deliveries: int, outputs: Sequence[str] = (), bound: str = ""
    ) -> "Receipt":
        """Return the whole receipt of a record of the batch. The arguments are attributes of `Receipt`."""
        values: tuple[Any, ...] = (
            *msgspec.structs.astuple(self),
            entry.decode(errors="replace"),
            read_ms,
            deliveries,
            outputs,
            bound,
        )
        return Receipt(*values)

    def encode(self) -> bytes:
        """Return a JSON object."""
        return _encode(self)


class Receipt(BatchReceipt, frozen=True, omit_defaults=True):
    """Whole receipt of a record.

    Attributes:
        entry: id of the record in the job's stream.
        read_ms: Unix time in ms when a reader had the record.
        deliveries: number of times that Redis gave the record to a node.
        outputs: names of several outputs in the order of the model, in a result hash only, because a hash forgets the order of its
            fields.
        bound: `order` if the record's several inputs were bound by order, because no name was like the model's. Else empty.
    """

    entry: str
    read_ms: float
    deliveries: int = 1
    outputs: Sequence[str] = ()
    bound: str = ""

    @property
    def enqueued_ms(self) -> int:
        """Unix time in ms when Redis took the record.

        Raises:
            CodecError: `entry` is not the id of a stream entry.
        """
        try:
            return int(self.entry.partition("-")[0])
        except ValueError as error:
            raise CodecError("the receipt does not say when its record was enqueued") from error

    @property
    def stages(self) -> dict[str, float]:
        """Milliseconds of each stage, in order.

        `stream`: until a reader had the record. `fill`: until the batch was closed. `wait`: for a worker. `run`: in the worker.
        `publish`: for the writer. The sum is the time from the queue to the result.

        Raises:
            CodecError: `entry` is not the id of a stream entry.
        """
        stages = {
            "stream": max(0.0, self.read_ms - self.enqueued_ms),
            "fill": max(0.0, self.filled_ms - self.read_ms),
            "wait": self.wait_ms,
            "run": self.run_ms,
            "publish": self.publish_ms,
        }
        return {name: round(took_ms, 3) for name, took_ms in stages.items()}


class SplitReceipt(NamedTuple):
    """Receipt as an entry of a reply stream holds it: the record's own part, and the part of the batch as JSON."""

    entry: bytes
    read_ms: float
    deliveries: int
    batch: bytes
    bound: str = ""

    def joined(self) -> Receipt:
        """Return the whole receipt.

        Raises:
            CodecError: the part of the batch is damaged, or written by a node of another version.
        """
        return _decoded(self.batch, BatchReceipt).of_record(self.entry, self.read_ms, self.deliveries, bound=self.bound)


def decode_receipt(content: bytes) -> Receipt:
    """Return the receipt in the field `receipt` of a result hash.

    Raises:
        CodecError: the receipt is damaged, or written by a node of another version.
    """
    return _decoded(content, Receipt)


def _decoded(content: bytes, kind: type[_Part]) -> _Part:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise CodecError(
            f"the receipt is incomplete ({error}): was it written by a node of another version?"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodecError(f"field receipt is not JSON: {error}") from error
