"""Entry of a reply stream: the results of one batch, or of a part of a batch, for one waiting client.

    batch   JSON: `BatchReceipt`, the part of the receipt that is equal for all results
    <uri>   MessagePack: the record's own part of the receipt (`entry`, `read_ms`, `deliveries`), and the fields of the record's
            result as a list: name, value, ... One field may be `bound`, which few receipts have
    <uri>   ...

With one entry and one whole receipt per result, the tiny MLP of bench/queue.py took a tenth more of every core.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import SplitReceipt
from cluster_serving.client.wire.result import Result, decode_result

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, float, int, list[bytes]]).decode

Entry = tuple[bytes, Sequence[bytes]]
"""Id and fields of an entry: names and values in turn."""


class Reply(NamedTuple):
    """One result, as received."""

    uri: bytes
    packed: bytes
    batch: bytes

    def unpack(self) -> tuple[list[bytes], SplitReceipt]:
        """Return the fields of the result, and the receipt.

        Raises:
            CodecError: `packed` is not a packed result.
        """
        try:
            entry, read_ms, deliveries, fields = _decode(self.packed)
        except msgspec.DecodeError as error:
            raise CodecError(f"not a packed result: {error}") from error
        return fields, SplitReceipt(entry, read_ms, deliveries, self.batch)

    def result(self) -> Result:
        """Return the result. An unreadable result becomes a failed result, and does not stop the remaining results."""
        uri = self.uri.decode(errors="replace")
        try:
            return decode_result(uri, *self.unpack())
        except CodecError as error:
            return Result(uri, {}, error=("Unreadable", str(error)))


def pack(entry: bytes, read_ms: float, deliveries: int, fields: Sequence[bytes]) -> bytes:
    """Return a result in the form of an entry. The first three arguments are attributes of `Receipt`."""
    return _encode((entry, read_ms, deliveries, fields))


def read_replies(entries: Iterable[Entry]) -> list[Reply]:
    """Return the results in entries of a reply stream. An entry without results is left out."""
    return [
        Reply(uri, packed, fields[1])
        for _, fields in entries
        if len(fields) >= 2 and fields[0] == keys.BATCH
        for uri, packed in zip(fields[2::2], fields[3::2], strict=True)
    ]
