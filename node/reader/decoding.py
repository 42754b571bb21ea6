"""Decoding of a stream entry into contents for a slot: bind fields to the model's inputs, check values, convert values.

The common record, with every tensor of the model's own dtype and shape, is not copied here. The record's data are copied once,
from the reply of Redis into the slot. Entries that arrive together are mostly alike, and are decoded together (`columns.py`).
"""

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import structlog

from cluster_serving import __version__
from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.tensor_spec import MAX_DENSE_BYTES
from cluster_serving.client.wire.binding import bind, listed
from cluster_serving.client.wire.compression import restore
from cluster_serving.client.wire.original.base64_text import from_base64
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.original.json_record import decode_json_record
from cluster_serving.client.wire.original.values import EncodedImage, OriginalValue
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.node.models.base import TensorSpec, open_inputs
from cluster_serving.node.processing.model_input import (
    Content,
    InputValue,
    ModelInput,
    SharedInput,
    model_input,
    original_field,
    raw_record,
)
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.columns import Columns, FieldMap
from cluster_serving.node.ring.deadline import deadline_ms, life_ms, too_late
from cluster_serving.node.ring.forecast import NO_FORECAST, Forecast
from cluster_serving.node.ring.input_layout import Signature
from cluster_serving.node.ring.slot import BATCHED, BY_ORDER, LEGACY, ORIGINAL, cut
from cluster_serving.node.ring.traceparent import bounded

log = structlog.get_logger(__name__)

_SPARSE = {keys.SPARSE_INDICES, keys.SPARSE_VALUES, keys.SPARSE_SHAPE}
_KINDS = (keys.TENSOR, keys.BOOL, keys.COMPRESSED, keys.IMAGE, keys.STRING, keys.NESTED, *sorted(_SPARSE))
_LEGACY_FIELDS = (keys.LEGACY_IMAGE, keys.LEGACY_TENSOR)
_MAX_FIELD_MAPS = 1024
_MOST_TOLD = 16
_MAX_NAMES_BYTES = 1 << 16  # the field map of longer field names is made anew for each entry, and not kept


class Record(NamedTuple):
    """Decoded entry: the content of each model input, or the error (code, message) that answers the record."""

    uri: bytes
    reply: bytes
    flags: int
    signature: Signature
    contents: Sequence[Content]
    error: tuple[str, str] | None = None
    deadline_ms: int = 0
    traceparent: bytes = b""


class RecordDecoder:
    """Decodes the entries of one job.

    Args:
        inputs: inputs of the model. Empty: the model takes any number of tensors.
        reply_prefix: prefix of permitted reply streams, those of the job. The prefix of old frontends is permitted too. A request
            must not name any further key of this Redis.
        options: the job's settings for decoding entries.
        slot_bytes: most bytes that the compressed tensors of a record may have once they are decompressed.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        reply_prefix: bytes,
        options: DecodeOptions | None = None,
        slot_bytes: int = MAX_DENSE_BYTES,
    ) -> None:
        self._options = options or DecodeOptions()
        self._slot_bytes = slot_bytes
        self._specs = tuple(inputs)
        self._inputs = [model_input(spec, self._options) for spec in inputs]
        self._shared = {at for at, each in enumerate(self._inputs) if isinstance(each, SharedInput)}
        self._reply_prefixes = (reply_prefix, keys.OLD_FRONTENDS.encode())
        self._field_maps: dict[tuple[bytes, ...], FieldMap] = {}  # by field names
        self._bindings: dict[tuple[str, ...], tuple[Sequence[int], int]] = {}  # by input names
        self._told_order = False
        self._told_wires: set[int] = set()

    def decode(
        self, entry_id: bytes, fields: Sequence[bytes], now_ms: float, expected: Forecast = NO_FORECAST
    ) -> Record:
        """Decode one entry, given as `field, value, field, value, ...`. Never raises for a client's mistake.

        `now_ms` is Unix time on Redis' clock. A record whose answer is `expected` after the record's deadline is refused.
        """
        at = self._field_map_of(fields)
        uri = fields[at.uri] if at.uri >= 0 else b""
        reply = fields[at.reply] if at.reply >= 0 else b""
        traceparent = bounded(fields[at.traceparent]) if at.traceparent >= 0 else b""
        flags = at.dialect
        name = entry_id  # without a usable uri the answer goes under the entry id, where the client can look for it
        try:
            _check_uri(uri)
            name = uri
            if reply and not self._can_reply(reply):
                if self._may_reply(reply):
                    return Record(uri, reply, flags, (), (), self._other_version(reply), 0, traceparent)
                raise CodecError(f"the reply stream must begin with {self._reply_prefixes[0].decode()}")
            until_ms = deadline_ms(entry_id, fields[at.deadline]) if at.deadline >= 0 else 0
            if at.deadline >= 0:
                needed_ms = expected.answer_ms(life_ms(entry_id, until_ms))
                if until_ms < now_ms + needed_ms:
                    error = too_late(until_ms - now_ms, needed_ms, "a node could take the record")
                    return Record(uri, reply, flags, (), (), error, 0, traceparent)
            values, by_order = self._original(at, fields) if flags else (self._native(at, fields), at.flags)
            signature, batched = self._signature(values, flags)
        except Exception as fault:  # every exception of a decoder is answered as a fault of the record
            error = (ErrorCode.INVALID_INPUT, cut(str(fault)))
            return Record(name, reply if self._may_reply(reply) else b"", flags, (), (), error, 0, traceparent)
        contents = [value.content for value in values]
        return Record(uri, reply, flags | batched | by_order, signature, contents, None, until_ms, traceparent)

    def decode_alike(
        self, ids: Sequence[bytes], entries: Sequence[Sequence[bytes]], earliest_ms: float
    ) -> Columns | None:
        """Decode entries together, each given as for `decode`.

        Returns:
            None when an entry has a deadline before `earliest_ms`, when the entries differ, or when `decode` has not met an entry
            of the same form yet.
        """
        try:
            columns = list(zip(*entries, strict=True))
        except ValueError:
            return None
        names = columns[::2]
        field_map = self._field_maps.get(tuple([column[0] for column in names]))
        if field_map is None or not all(column.count(column[0]) == len(column) for column in names):
            return None
        return field_map.alike(ids, columns, earliest_ms, self._can_reply)

    def refuse(self, entry_id: bytes, fields: Sequence[bytes], error: tuple[str, str]) -> Record:
        """Return the record of an entry that is answered with an error. The inputs are not decoded."""
        given = dict(zip(fields[::2], fields[1::2], strict=True))
        uri, reply = given.get(keys.URI, b""), given.get(keys.REPLY, b"")
        reply = reply if self._may_reply(reply) else b""
        flags = self._dialect(given)
        traceparent = bounded(given.get(keys.TRACEPARENT, b""))
        try:
            _check_uri(uri)
        except CodecError:
            uri = entry_id
        return Record(uri, reply, flags, (), (), error, 0, traceparent)

    def _signature(self, values: Sequence[InputValue], dialect: int) -> tuple[Signature, int]:
        """Return the signature of a record, and the flag BATCHED if the record carries a batch dimension of 1."""
        own = values if not self._shared else [value for at, value in enumerate(values) if at not in self._shared]
        rows = [value.rows for value in own]
        # A record that is declared to be a batch is run as a batch, because the model may not work row by row.
        exact = self._options.calls and None not in rows
        if set(rows) <= {None, 1} and not exact:
            # Where a row is a single value, an array with a single item may be the value or a batch of 1. The remaining inputs
            # decide. Without such inputs the array is the value in the original dialect, because the dialect has arrays only.
            telling = [value.rows for value in own if value.key[2] != ()]
            batched = 1 in (telling or ([] if dialect & ORIGINAL else rows))
            return tuple(value.key for value in values), BATCHED if batched else 0
        if None in rows or (len(set(rows)) > 1 and not self._options.calls):
            named = ", ".join(str(each) for each in rows)
            raise CodecError(f"all inputs of a record must have the same number of rows, and they have {named}")
        return tuple(value.whole_key for value in values), 0

    def _model_inputs(self, count: int) -> list[ModelInput]:
        """Return the model's inputs. For a model that takes any number of tensors: `count` inputs."""
        axis = None if self._options.calls else 0
        return self._inputs or [model_input(spec, self._options) for spec in open_inputs(count, axis)]

    def _may_reply(self, reply: bytes) -> bool:
        return reply.startswith(self._reply_prefixes) and len(reply) <= keys.MAX_URI_BYTES

    def _can_reply(self, reply: bytes) -> bool:
        return self._may_reply(reply) and keys.can_read(reply)

    def _other_version(self, reply: bytes) -> tuple[str, str]:
        """Return the error for a record of a client of a foreign wire, and log the first record of each wire."""
        wire = keys.wire_of(reply)
        error = (
            f"the client is of another version (it reads answers of wire {wire}, and this node, of version {__version__}, "
            f"writes wire {keys.OLDEST_WIRE} to {keys.WIRE}): upgrade one of them"
        )
        if wire not in self._told_wires and len(self._told_wires) < _MOST_TOLD:
            self._told_wires.add(wire)
            log.warning("records are refused", reason=error)
        return ErrorCode.OTHER_VERSION, error

    def _field_map_of(self, fields: Sequence[bytes]) -> FieldMap:
        names = tuple(fields[::2])
        return self._field_maps.get(names) or self._field_map(names)

    def _field_map(self, names: tuple[bytes, ...]) -> FieldMap:
        """Make the field map of entries with the given field names, and keep the map for later entries."""
        at = {name: 2 * index + 1 for index, name in enumerate(names)}
        given: dict[str, dict[bytes, int]] = {}  # positions by input name and kind
        inputs: list[dict[bytes, int]] = []
        dialect = self._dialect(at)
        flags, fault = 0, None
        try:
            for place, name in enumerate(names):
                for kind in _KINDS:
                    if name.startswith(kind):
                        _add(given, name[len(kind) :].decode(errors="replace"), kind, 2 * place + 1)
            if not dialect and not self._options.raw:
                places, flags = self._bind(tuple(given))
                parts = list(given.values())
                inputs = [parts[place] for place in places]
        except CodecError as error:
            fault = str(error)
        model_inputs = self._model_inputs(len(inputs))
        tensors: list[tuple[ModelInput, int]] = []
        if not dialect and not self._options.raw and all(set(parts) == {keys.TENSOR} for parts in inputs):
            tensors = [(each, parts[keys.TENSOR]) for each, parts in zip(model_inputs, inputs, strict=False)]
        field_map = FieldMap(
            uri=at.get(keys.URI, -1),
            reply=at.get(keys.REPLY, -1),
            deadline=at.get(keys.DEADLINE, -1),
            traceparent=at.get(keys.TRACEPARENT, -1),
            data=next((at[name] for name in (keys.DATA, *_LEGACY_FIELDS) if dialect and name in at), -1),
            dialect=dialect,
            serde=at.get(keys.SERDE, -1),
            inputs=inputs,
            model_inputs=model_inputs,
            tensors=tensors,
            flags=flags,
            fault=fault,
            compressed=any(name.startswith(keys.COMPRESSED) for name in names),
        )
        if len(self._field_maps) >= _MAX_FIELD_MAPS:
            self._field_maps.clear()
        if sum(map(len, names)) <= _MAX_NAMES_BYTES:
            self._field_maps[names] = field_map
        return field_map

    def _dialect(self, names: Container[bytes]) -> int:
        """Return the flags of the dialect of entries with the given field names."""
        legacy = self._options.legacy
        if keys.DATA in names:
            return ORIGINAL | LEGACY if legacy == "nightly" else ORIGINAL
        return ORIGINAL | LEGACY if legacy != "off" and any(name in names for name in _LEGACY_FIELDS) else 0

    def _bind(self, names: tuple[str, ...]) -> tuple[Sequence[int], int]:
        """Return the places of the model's inputs among the names of a record, and the flag BY_ORDER or 0.

        The binding is kept for later records, and the first binding by order is logged.
        """
        places, by_order = bind(names, self._specs, may_order=self._options.may_order)
        if by_order and not self._told_order:
            self._told_order = True
            log.warning(
                "inputs are bound by order, because their names are not the model's: name them as the model does, or set "
                "bindInputs: name to refuse such records",
                record=listed(names),
                model=listed([spec.name for spec in self._specs]),
            )
        bound = places, BY_ORDER if by_order else 0
        if len(self._bindings) >= _MAX_FIELD_MAPS:
            self._bindings.clear()
        if sum(map(len, names)) <= _MAX_NAMES_BYTES:
            self._bindings[names] = bound
        return bound

    def _native(self, at: FieldMap, fields: Sequence[bytes]) -> list[InputValue]:
        """Decode the inputs of an entry in the native dialect: a field for each input, several for a sparse tensor."""
        if at.fault:
            raise CodecError(at.fault)
        if at.compressed:
            fields = self._decompressed(fields)
            at = self._field_map_of(fields)
        if self._options.raw:
            pairs = zip(*[iter(fields)] * 2, strict=True)
            return [raw_record({name: value for name, value in pairs if name.startswith(_KINDS)})]
        values: list[InputValue] = []
        for each, parts in zip(at.model_inputs, at.inputs, strict=True):
            tensor = parts.get(keys.TENSOR)
            values.append(_no_tensor(each, parts, fields) if tensor is None else each.tensor_message(fields[tensor]))
        return values

    def _decompressed(self, fields: Sequence[bytes]) -> list[bytes]:
        """Return the fields of an entry with plain tensors in place of compressed tensors."""
        plain, room = list(fields), self._slot_bytes
        for at in range(0, len(plain), 2):
            if plain[at].startswith(keys.COMPRESSED):
                name = plain[at].removeprefix(keys.COMPRESSED)
                try:
                    kind, message = restore(plain[at + 1], room)
                except CodecError as error:
                    raise CodecError(f"input {name.decode(errors='replace')!r}: {error}") from error
                plain[at : at + 2] = kind + name, message
                room = max(0, room - len(message))
        return plain

    def _original(self, at: FieldMap, fields: Sequence[bytes]) -> tuple[list[InputValue], int]:
        """Decode the inputs of an entry in the original dialect, all in one field. Also return the flag BY_ORDER or 0."""
        columns: list[tuple[str, OriginalValue]]
        if fields[at.data - 1] == keys.LEGACY_IMAGE:
            columns = [("image", EncodedImage(from_base64(fields[at.data], "the record's image field")))]
        elif at.serde >= 0 and fields[at.serde] == b"stream":
            columns = decode_json_record(fields[at.data])
        else:
            columns = decode_record(fields[at.data], self._options.sparse_layout)
        if self._options.raw:
            given = dict(original_field(name, value, self._options.encrypted) for name, value in columns)
            return [raw_record(given)], 0
        names = tuple([name for name, _ in columns])
        places, flags = self._bindings.get(names) or self._bind(names)
        model_inputs = self._model_inputs(len(names))
        return [each.original_value(columns[place][1]) for each, place in zip(model_inputs, places, strict=True)], flags


def _add(given: dict[str, dict[bytes, int]], name: str, kind: bytes, position: int) -> None:
    """Note the position of a field of an input.

    Raises:
        CodecError: the input has a value already, unless both are parts of one sparse tensor.
    """
    parts = given.setdefault(name, {})
    if kind in parts or (parts and not {kind, *parts} <= _SPARSE):
        raise CodecError(f"the record has two values for input {name!r}")
    parts[kind] = position


def _check_uri(uri: bytes) -> None:
    if not 0 < len(uri) <= keys.MAX_URI_BYTES:
        raise CodecError(f"the record's uri has {len(uri)} bytes, it must have 1 to {keys.MAX_URI_BYTES}")
    try:
        uri.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"the record's uri is not UTF-8: {error}") from error


def _no_tensor(model_input: ModelInput, parts: Mapping[bytes, int], fields: Sequence[bytes]) -> InputValue:
    """Decode an input that is not given as a tensor message: an image, text, a sparse tensor, or booleans."""
    content = {kind: fields[index] for kind, index in parts.items()}
    match content:
        case {keys.BOOL: message}:
            return model_input.tensor(decode_tensor(message).astype(np.bool_))
        case {keys.IMAGE: encoded}:
            return model_input.image(encoded)
        case {keys.STRING: encoded}:
            return model_input.text(encoded)
        case {keys.NESTED: encoded}:
            return model_input.nested(encoded)
        case {keys.SPARSE_INDICES: indices, keys.SPARSE_VALUES: values, keys.SPARSE_SHAPE: shape}:
            return model_input.sparse(decode_tensor(indices), decode_tensor(values), decode_tensor(shape))
        case _:
            names = ", ".join(kind.decode() + model_input.spec.name for kind in parts)
            raise CodecError(f"a sparse tensor needs its indices, values and shape; the record has only {names}")
