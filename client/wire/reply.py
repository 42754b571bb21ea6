"""Entry of a reply stream: the results of one batch, or of a part of a batch, for one waiting client.

    batch   JSON: `BatchReceipt`, the part of the receipt that is equal for all results
    <uri>   MessagePack: the record's own part of the receipt (`entry`, `read_ms`, `deliveries`), and the fields of the record's
            result as a list: name, value, ...
    <uri>   ...

With one entry and one whole receipt per result, the tiny MLP of bench/queue.py took a tenth more of every core.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import SplitReceipt

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, float, int, list[bytes]]).decode


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


def pack(entry: bytes, read_ms: float, deliveries: int, fields: Sequence[bytes]) -> bytes:
    """Return a result in the form of an entry. The first three arguments are attributes of `Receipt`."""
    return _encode((entry, read_ms, deliveries, fields))


def read_replies(reply: Any) -> list[tuple[bytes, list[Reply]]]:
    """Return the id and the results of each entry in the reply to XREAD on one reply stream."""
    found: list[tuple[bytes, list[Reply]]] = []
    for _, entries in reply or ():
        for entry_id, fields in entries:
            results: list[Reply] = []
            if len(fields) >= 2 and fields[0] == keys.BATCH:
                batch = fields[1]
                results = [Reply(uri, packed, batch) for uri, packed in zip(fields[2::2], fields[3::2], strict=True)]
            found.append((entry_id, results))
    return found
