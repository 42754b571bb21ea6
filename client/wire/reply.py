"""Entry of a reply stream: the results of one batch, or of a part of a batch, for one waiting client.

    batch   JSON: `BatchReceipt`, the part of the receipt that is equal for all results
    <uri>   MessagePack: the record's own part of the receipt (`entry`, `read_ms`, `deliveries`), and the fields of the record's
            result as a list: name, value, ... One field may be `bound`, which few receipts have
    <uri>   ...

This is the form of wire 1. The name of the first field tells the form of an entry. Forms to come have first fields of other names,
and keep two promises. A uri stands as a field or a value of its own, so that a client fails the records of an entry that it cannot
read. A node answers a client of a wire that it does not understand with errors of wire 1, which every client reads.

With one entry and one whole receipt per result, the tiny MLP of bench/queue.py took a tenth more of every core.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from cluster_serving import __version__
from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.wire.receipt import SplitReceipt
from cluster_serving.client.wire.result import Result, decode_result

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, float, int, list[bytes]]).decode

_SHOWN = 60

Entry = tuple[bytes, Sequence[bytes]]
"""Id and fields of an entry: names and values in turn."""


class Reply(NamedTuple):
    """One result, as received.

    Attributes:
        uri: uri of the record, or a part of an entry of an unknown form.
        packed: the packed result, or the first field of an entry of an unknown form.
        batch: JSON of the part of the receipt that is equal for all results of an entry. Empty for an unknown form.
    """

    uri: bytes
    packed: bytes
    batch: bytes

    def unpack(self) -> tuple[list[bytes], SplitReceipt]:
        """Return the fields of the result, and the receipt.

        Raises:
            CodecError: the result has an unknown form, or `packed` is not a packed result.
        """
        if not self.batch:
            raise CodecError(unknown_form(self.packed))
        try:
            entry, read_ms, deliveries, fields = _decode(self.packed)
        except msgspec.DecodeError as error:
            raise CodecError(f"not a packed result ({error}): was it written by a node of another version?") from error
        return fields, SplitReceipt(entry, read_ms, deliveries, self.batch)

    def result(self) -> Result:
        """Return the result. An unreadable result becomes a failed result, and does not stop the remaining results."""
        uri = self.uri.decode(errors="replace")
        try:
            return decode_result(uri, *self.unpack())
        except CodecError as error:
            return Result(uri, {}, error=(ErrorCode.UNREADABLE, str(error)))


def pack(entry: bytes, read_ms: float, deliveries: int, fields: Sequence[bytes]) -> bytes:
    """Return a result in the form of an entry. The first three arguments are attributes of `Receipt`."""
    return _encode((entry, read_ms, deliveries, fields))


def read_replies(entries: Iterable[Entry]) -> list[Reply]:
    """Return the results in entries of a reply stream.

    An entry of an unknown form becomes an unreadable result for each part of the entry that may be a uri.
    """
    replies: list[Reply] = []
    for _, fields in entries:
        if is_known(fields):
            batch = fields[1]
            replies += [Reply(uri, packed, batch) for uri, packed in zip(fields[2::2], fields[3::2], strict=True)]
        else:
            replies += [Reply(part, fields[0], b"") for part in fields if len(part) <= keys.MAX_URI_BYTES]
    return replies


def is_known(fields: Sequence[bytes]) -> bool:
    """Return whether the fields of an entry have a form that this release reads."""
    return fields[0] == keys.BATCH


def unknown_form(first_field: bytes) -> str:
    """Return a sentence about an entry of an unknown form, told by the name of its first field."""
    form = first_field[:_SHOWN].decode(errors="replace")
    return (
        f"a node of another version has answered (with an entry of the form {form!r}, and this client, of version {__version__}, "
        f"reads wire {keys.OLDEST_WIRE} to {keys.WIRE}): upgrade one of them"
    )
