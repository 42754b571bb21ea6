"""Results on their way to a client that waits for them: one entry of its reply stream has those of one batch, or of a part of it.

    batch   JSON: the part of the receipt that is the same for all of them
    <uri>   MessagePack: the record's entry id, `read_ms`, deliveries, and the fields of its result as a list: name, value, ...
    <uri>   ...

With an entry and a whole receipt for each result, the tiny MLP of bench/queue.py took a tenth more of every core.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import Receipt

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[bytes, float, int, list[bytes]]).decode


class Reply(NamedTuple):
    """One result, as it has come."""

    uri: bytes
    packed: bytes
    batch: bytes

    def unpack(self) -> tuple[list[bytes], Receipt]:
        """The fields of the result, and how it went.

        Raises:
            CodecError: these are no packed result.
        """
        try:
            entry, read_ms, deliveries, fields = _decode(self.packed)
        except msgspec.DecodeError as error:
            raise CodecError(f"not a packed result: {error}") from error
        return fields, Receipt(entry, read_ms, deliveries, self.batch)


def pack(entry: bytes, read_ms: float, deliveries: int, fields: Sequence[bytes]) -> bytes:
    """A result as it stands in an entry; the first three are those of its `Receipt`."""
    return _encode((entry, read_ms, deliveries, fields))


def read_replies(reply: Any) -> list[tuple[bytes, list[Reply]]]:
    """The ids of entries, and the results in each, of what XREAD of one reply stream has brought."""
    return [(entry_id, _results(fields)) for _, entries in reply or () for entry_id, fields in entries]


def _results(fields: list[bytes]) -> list[Reply]:
    if len(fields) < 2 or fields[0] != keys.BATCH:
        return []
    batch = fields[1]
    return [Reply(uri, packed, batch) for uri, packed in zip(fields[2::2], fields[3::2], strict=True)]
