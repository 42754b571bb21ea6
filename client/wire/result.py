"""Results, decoded from the fields of a hash or a reply."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.wire.nested import decode_nested
from cluster_serving.client.wire.receipt import Receipt, SplitReceipt, decode_receipt
from cluster_serving.client.wire.tensors import decode_tensor

_MAX_NAMES = 4096


class Result:
    """Outcome of a record: outputs, or a filter's value, or an error (code, message).

    Attributes:
        uri: the record's name.
        outputs: array of each output. Text is a str or nested lists of str. Sequences and maps are lists and dicts of arrays.
        filtered: JSON value that a filter or `postprocess` made of the outputs, or None. In the original dialect, whose results
            do not name outputs: the value of each result.
        error: reason for a missing result (code, message), or None.
    """

    __slots__ = ("_receipt", "error", "filtered", "outputs", "uri")

    def __init__(
        self,
        uri: str,
        outputs: dict[str, Any],
        filtered: Any = None,
        error: tuple[str, str] | None = None,
        receipt: bytes | SplitReceipt | None = None,
    ) -> None:
        self.uri = uri
        self.outputs = outputs
        self.filtered = filtered
        self.error = error
        self._receipt = receipt

    @property
    def value(self) -> Any:
        """Value that `predict` returns: the array or text of one output, a list of several outputs, or a filter's value.

        None for a failed record.
        """
        if self.filtered is not None or not self.outputs:
            return self.filtered
        outputs = list(self.outputs.values())
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def receipt(self) -> Receipt | None:
        """Receipt of the node. None in the original dialect, and for an error that the client itself found.

        Raises:
            CodecError: the receipt is damaged, or written by a node of another version.
        """
        if isinstance(self._receipt, bytes):
            return decode_receipt(self._receipt)
        return self._receipt.joined() if self._receipt is not None else None

    @property
    def stages(self) -> dict[str, float]:
        """Milliseconds of each stage, from the queue to the result (`Receipt.stages`). Empty without a receipt.

        Raises:
            CodecError: the receipt is damaged, or written by a node of another version.
        """
        receipt = self.receipt
        return receipt.stages if receipt is not None else {}

    def __repr__(self) -> str:
        what = f"outputs={self.outputs}" if self.filtered is None else f"value={self.filtered}"
        if self.error is not None:
            what = f"error={self.error}"
        return f"Result(uri={self.uri!r}, {what})"


def decode_result(uri: str, fields: Sequence[bytes], receipt: SplitReceipt | None = None) -> Result:
    """Return the result in a native result hash or reply.

    Args:
        uri: uri of the record.
        fields: `field, value, field, value, ...`.
        receipt: receipt of a reply. In a hash, a field holds the receipt.

    Raises:
        CodecError: the bytes of a field do not have the format in the field's name.
    """
    if len(fields) == 2 and fields[0].startswith(keys.TENSOR):  # the most common case. The loop takes a third longer
        return Result(uri, {_name(fields[0]): decode_tensor(fields[1]).copy()}, None, None, receipt)
    outputs: dict[str, Any] = {}
    filtered: Any = None
    error: tuple[str, str] | None = None
    whole: bytes | None = None
    for field, content in zip(fields[::2], fields[1::2], strict=True):
        if field.startswith(keys.TENSOR):
            outputs[_name(field)] = decode_tensor(content).copy()
        elif field == keys.RECEIPT:
            whole = content
        elif field.startswith(keys.BOOL):
            outputs[_name(field)] = decode_tensor(content).astype(np.bool_)
        elif field.startswith(keys.STRING):
            outputs[_name(field)] = _json(field, content)
        elif field.startswith(keys.NESTED):
            outputs[_name(field)] = decode_nested(content)
        elif field == keys.VALUE:
            filtered = _json(field, content)
        elif field == keys.ERROR:
            document = _object(field, content)
            error = (str(document.get("code")), str(document.get("message")))
        elif field == keys.BOUND and receipt is not None:
            receipt = receipt._replace(bound=content.decode(errors="replace"))
    if len(outputs) > 1 and whole is not None:
        # A hash forgets the order of its fields. The names alone are read, because a node of another version may have written the
        # receipt.
        names = _object(keys.RECEIPT, whole).get("outputs", list(outputs))
        if not isinstance(names, list) or {*map(str, names)} != outputs.keys():
            raise CodecError(f"the receipt names outputs {names}, the result has {list(outputs)}")
        outputs = {str(name): outputs[str(name)] for name in names}
    return Result(uri, outputs, filtered, error, receipt if whole is None else whole)


def pack_fields(fields: Sequence[bytes]) -> bytes:
    """Return the fields of a result as one value, for the hash of a call that is answered later."""
    return msgspec.msgpack.encode(fields)


def unpack_result(uri: str, packed: bytes) -> Result:
    """Return the result in the hash of a call that is answered later. An unreadable result becomes a failed result."""
    try:
        return decode_result(uri, msgspec.msgpack.decode(packed, type=list[bytes]))
    except (msgspec.MsgspecError, ValueError) as error:  # CodecError is a ValueError
        why = f"the result cannot be read ({error}): was it written by a node of another version?"
        return Result(uri, {}, error=(ErrorCode.UNREADABLE, why))


@lru_cache(maxsize=_MAX_NAMES)
def _name(field: bytes) -> str:
    return field.partition(b":")[2].decode(errors="replace")


def _json(field: bytes, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CodecError(f"field {field.decode(errors='replace')} is not JSON: {error}") from error


def _object(field: bytes, content: bytes) -> dict[str, Any]:
    document = _json(field, content)
    if not isinstance(document, dict):
        raise CodecError(f"field {field.decode()} is not a JSON object")
    return cast(dict[str, Any], document)
