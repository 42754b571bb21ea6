"""Dead letters: a stream of records that no node could process, each with the reason.

    1763657000000-0
        dead_letter   {"code":"InferenceFailed","message":"ValueError: ...","traceback":"Traceback ...",
                       "entry":"1763656999000-0","node":"host-1a2b3c","model":"sha256:...","died_ms":1763657000000,
                       "deliveries":1}
        uri           img-17                     from here on the record's own fields, unchanged
        tensor:x      ...

    1763657000001-0
        dead_letter       {"code":"InferenceFailed", ...}
        dead_letter_cut   10000128               bytes of the whole record: from here on its first bytes
        uri               img-18
        tensor:x          ...

The writer of a node makes the reason, and puts the letter beside the record's result, which is an error.
"""

import msgspec

from cluster_serving.client import keys

_DIGITS = 18
_UNREADABLE = "Unreadable"
UNPUBLISHED = "Unpublished"
CUT = b"dead_letter_cut"


class Reason(msgspec.Struct, frozen=True):
    """Cause and place of a record's death."""

    code: str = _UNREADABLE
    """An `ErrorCode`, the same as in the record's answer, or `UNPUBLISHED`."""
    message: str = ""
    """Error message of the answer."""
    traceback: str = ""
    """Traceback of the exception. Empty without an exception, for example after a worker was killed."""
    entry: str = ""
    """The record's id in the job's stream. The id begins with the Unix time in ms at which the record was enqueued."""
    node: str = ""
    """Node that gave the record up."""
    model: str = ""
    """Result of `fingerprint` for the model that could not process the record."""
    died_ms: int = 0
    """Unix time in ms at which the record died."""
    deliveries: int = 0
    """Number of times that Redis had given the record to a node, as far as the node of the letter knows."""

    def encode(self) -> bytes:
        """Return the JSON object of the field `dead_letter`."""
        return msgspec.json.encode(self)


class DeadLetter(msgspec.Struct, frozen=True):
    """Dead letter: its `id` in the stream of dead letters, the reason, and the record's `fields`, unchanged and in order.

    Of a large record, which had `cut_bytes`, only the first bytes are left. 0: the record is whole.
    """

    id: str
    reason: Reason
    fields: list[tuple[bytes, bytes]]
    cut_bytes: int = 0

    @property
    def uri(self) -> str:
        """Name of the record, empty when the record had none."""
        return next((value.decode(errors="replace") for field, value in self.fields if field == keys.URI), "")


def decode_letter(letter_id: bytes, fields: list[bytes]) -> DeadLetter:
    """Return a dead letter from its entry, given as `field, value, field, value, ...`.

    For an unreadable reason, the message of the returned reason says that the reason cannot be read.
    """
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    if not pairs or pairs[0][0] != keys.DEAD_LETTER:
        return DeadLetter(letter_id.decode(), decode_reason(letter_id), pairs)
    reason = decode_reason(letter_id, pairs[0][1])
    if len(pairs) > 1 and pairs[1][0] == CUT and pairs[1][1].isdigit():
        return DeadLetter(letter_id.decode(), reason, pairs[2:], int(pairs[1][1][:_DIGITS]))
    return DeadLetter(letter_id.decode(), reason, pairs[1:])


def decode_reason(letter_id: bytes, content: bytes | None = None) -> Reason:
    """Return the reason of a letter from its first field. The message of an unreadable one, or of none, says so."""
    died_ms = int(letter_id.partition(b"-")[0])
    if content is None:
        return Reason(message="the letter does not begin with its reason", died_ms=died_ms)
    try:
        return msgspec.json.decode(content, type=Reason)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Reason(message=f"the reason cannot be read: {error}", died_ms=died_ms)
