"""Forms of entries: the names of their fields and the positions of the fields.

Entries that arrive together mostly have the same form, with tensors of the same shape. The reader decodes such entries together,
column by column. Decoding column by column takes a third of the time of decoding entry by entry.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.node.processing.model_input import Content, ModelInput
from cluster_serving.node.ring.deadline import deadlines_ms
from cluster_serving.node.ring.input_layout import Signature
from cluster_serving.node.ring.traceparent import bounded


class Columns(NamedTuple):
    """Decoded entries of one signature and with the same flags, without errors: a column for each property and each model input."""

    uris: Sequence[bytes]
    replies: Sequence[bytes]
    signature: Signature
    contents: Sequence[Sequence[Content]]
    deadlines_ms: Sequence[int]
    traceparents: Sequence[bytes]
    flags: int = 0


class FieldMap(NamedTuple):
    """Positions of contents in entries of one form. -1: the field is absent.

    Attributes:
        data: field of a dialect with all inputs in one field: `data`, or before 0.9 `image` or `tensor`.
        dialect: flags of the dialect: 0 (native), ORIGINAL, or ORIGINAL and LEGACY.
        inputs: for each input, in the model's order, the position of its content by kind of field (`keys.TENSOR`, ...).
        model_inputs: the model's inputs, in the same order.
        tensors: each model input with its position when every input is a tensor, else empty.
        flags: flags of every record of the form: BY_ORDER or 0.
        fault: message for the client when the fields are not the model's inputs. `inputs` is empty in this case.
        compressed: True if a field is a compressed tensor.
    """

    uri: int
    reply: int
    deadline: int
    traceparent: int
    data: int
    dialect: int
    serde: int
    inputs: list[dict[bytes, int]]
    model_inputs: list[ModelInput]
    tensors: list[tuple[ModelInput, int]]
    flags: int
    fault: str | None
    compressed: bool

    def alike(
        self,
        ids: Sequence[bytes],
        columns: Sequence[Sequence[bytes]],
        earliest_ms: float,
        may_reply: Callable[[bytes], bool],
    ) -> Columns | None:
        """Decode entries of this form, given as columns.

        Returns:
            None when an entry has a fault or a deadline before `earliest_ms`, or when the entries differ. Also None for tensors
            with a header that has not been decoded entry by entry before.
        """
        if not self.tensors:
            return None
        absent = (b"",) * len(columns[0])
        uris = columns[self.uri] if self.uri >= 0 else absent
        replies = columns[self.reply] if self.reply >= 0 else absent
        until_ms: Sequence[int] = (0,) * len(absent)
        if self.deadline >= 0:
            try:
                until_ms = deadlines_ms(ids, columns[self.deadline])
            except CodecError:
                return None
            if min(until_ms) < earliest_ms:
                return None
        if min(map(len, uris)) == 0 or max(map(len, uris)) > keys.MAX_URI_BYTES or not all(map(bytes.isascii, uris)):
            return None
        inputs = [found for each, at in self.tensors if (found := each.alike(columns[at])) is not None]
        if len(inputs) < len(self.tensors) or not all(not reply or may_reply(reply) for reply in set(replies)):
            return None
        traceparents = [bounded(each) for each in columns[self.traceparent]] if self.traceparent >= 0 else absent
        signature = tuple([key for key, _ in inputs])
        contents = [contents for _, contents in inputs]
        return Columns(uris, replies, signature, contents, until_ms, traceparents, self.flags)
