"""From the fields of a stream entry to what goes into a slot: bind to the model's inputs, check, convert.

The common record (every tensor of the model's own dtype and shape) is two dictionary look-ups and no copy: its data are
copied once, from the reply of Redis into the slot.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from cluster_serving.client import keys, original
from cluster_serving.client.errors import CodecError, ErrorCode
from cluster_serving.client.wire import decode_tensor
from cluster_serving.node.inputs import Content, Input, InputValue, Key, original_field, raw_record
from cluster_serving.node.layout import Signature
from cluster_serving.node.models.base import TensorSpec, open_inputs
from cluster_serving.node.slot import BATCHED, ORIGINAL, cut
from cluster_serving.node.specs import DecodeOptions
from cluster_serving.node.trace import bounded

T = TypeVar("T")

_KINDS = (keys.TENSOR, keys.BOOL, keys.IMAGE, keys.STRING, keys.SPARSE_INDICES, keys.SPARSE_VALUES, keys.SPARSE_SHAPE)
_MAX_PLANS = 1024
_MAX_NAMES_BYTES = 1 << 16  # longer ones are looked at each time, and not kept
_DEADLINE_DIGITS = 18  # more do not fit into the row table


class Record(NamedTuple):
    """A decoded entry: for each model input its content; or the error (code, message) that answers it."""

    uri: bytes
    reply: bytes
    flags: int
    signature: Signature
    contents: Sequence[Content]
    error: tuple[str, str] | None = None
    deadline_ms: int = 0
    traceparent: bytes = b""


class _Plan(NamedTuple):
    """Where things stand in entries with the same field names; -1: absent."""

    uri: int
    reply: int
    deadline: int
    traceparent: int
    data: int
    serde: int
    inputs: list[dict[bytes, int]]  # in the model's order: for each kind of field where its content stands
    tensors: list[tuple[Input, int]]  # the same where every input is a tensor; else empty
    takers: list[Input]
    fault: str | None


class RecordDecoder:
    """Decodes the entries of one job.

    Args:
        inputs: what the model takes; none: any number of tensors.
        reply_prefix: reply streams must begin so, or as those of frontends: a request must not name another key of this Redis.
        options: how the job's configuration wants them read.
    """

    def __init__(self, inputs: Sequence[TensorSpec], reply_prefix: bytes, options: DecodeOptions | None = None) -> None:
        self._options = options or DecodeOptions()
        self._inputs = [Input(spec, self._options) for spec in inputs]
        self._reply_prefixes = (reply_prefix, keys.frontend_reply_key("").encode())
        self._names = {spec.name for spec in inputs}
        self._takes = ", ".join(spec.describe() for spec in inputs)
        self._plans: dict[tuple[bytes, ...], _Plan] = {}

    def decode(self, entry_id: bytes, fields: Sequence[bytes], now_ms: float) -> Record:
        """Decode one entry, given as `field, value, field, value, ...`. Never raises for what a client sent.

        `now_ms` is Unix time on Redis' clock.
        """
        names = tuple(fields[::2])
        plan = self._plans.get(names) or self._plan(names)
        uri = fields[plan.uri] if plan.uri >= 0 else b""
        reply = fields[plan.reply] if plan.reply >= 0 else b""
        contents: list[Content] = []
        good_uri = 0 < len(uri) <= keys.MAX_URI_BYTES and uri.isascii()
        in_time = plan.deadline < 0 or _is_open(fields[plan.deadline], now_ms)
        if plan.tensors and good_uri and in_time and (not reply or self._may_reply(reply)):
            signature: list[Key] = []
            for taker, at in plan.tensors:
                message = fields[at]
                exact = taker.exact.get(message[: 8 + int.from_bytes(message[4:8], "little")])
                if exact is None or len(message) < exact[2]:
                    break
                signature.append(exact[0])
                contents.append(memoryview(message)[exact[1] : exact[2]])
            else:
                deadline_ms = int(fields[plan.deadline]) if plan.deadline >= 0 else 0
                traceparent = bounded(fields[plan.traceparent]) if plan.traceparent >= 0 else b""
                return Record(uri, reply, 0, tuple(signature), contents, None, deadline_ms, traceparent)
        record = self._decode_slowly(plan, entry_id, uri, reply, fields, now_ms)
        return record if plan.traceparent < 0 else record._replace(traceparent=bounded(fields[plan.traceparent]))

    def refuse(self, entry_id: bytes, fields: Sequence[bytes], error: tuple[str, str]) -> Record:
        """The record of an entry that is answered with an error, and whose inputs are not looked at."""
        given = dict(zip(fields[::2], fields[1::2], strict=True))
        uri, reply = given.get(keys.URI, b""), given.get(keys.REPLY, b"")
        reply = reply if self._may_reply(reply) else b""
        flags = ORIGINAL if keys.DATA in given else 0
        traceparent = bounded(given.get(keys.TRACEPARENT, b""))
        return Record(uri if _is_uri(uri) else entry_id, reply, flags, (), (), error, 0, traceparent)

    def _decode_slowly(
        self, plan: _Plan, entry_id: bytes, uri: bytes, reply: bytes, fields: Sequence[bytes], now_ms: float
    ) -> Record:
        """Everything else: any kind of value, either dialect, every check."""
        flags = ORIGINAL if plan.data >= 0 else 0
        name = entry_id  # without a usable uri the answer goes where the client can look for it
        try:
            _check_uri(uri)
            name = uri
            if reply and not self._may_reply(reply):
                raise CodecError(f"the reply stream must begin with {self._reply_prefixes[0].decode()}")
            deadline_ms = _deadline_ms(fields[plan.deadline]) if plan.deadline >= 0 else 0
            if plan.deadline >= 0 and deadline_ms < now_ms:
                return Record(uri, reply, flags, (), (), late(now_ms - deadline_ms, "a node could take the record"))
            values = self._original(plan, fields) if flags else self._native(plan, fields)
            signature, batched = self._signature(values, flags)
        except Exception as fault:  # whatever a decoder raises belongs to the record that makes it raise
            error = (ErrorCode.INVALID_INPUT, cut(str(fault)))
            return Record(name, reply if self._may_reply(reply) else b"", flags, (), (), error)
        contents = [value.content for value in values]
        return Record(uri, reply, flags | batched, signature, contents, None, deadline_ms)

    def _signature(self, values: Sequence[InputValue], dialect: int) -> tuple[Signature, int]:
        """The signature of a record, and its flag when it carries a batch dimension of 1."""
        rows = [value.rows for value in values]
        # One that says that it is a batch is run as one: the model may not work row by row.
        exact = self._options.already_batched and None not in rows
        if set(rows) <= {None, 1} and not exact:
            # Where a row is a single value, an array of one may be that value or a batch of one: the other inputs tell. If none
            # does, it is the value in the original dialect, which has arrays only.
            telling = [value.rows for value in values if value.key[2] != ()]
            batched = 1 in (telling or ([] if dialect == ORIGINAL else rows))
            return tuple(value.key for value in values), BATCHED if batched else 0
        if None in rows or (len(set(rows)) > 1 and not self._options.already_batched):
            named = ", ".join(str(each) for each in rows)
            raise CodecError(f"all inputs of a record must have the same number of rows, and they have {named}")
        return tuple(value.whole_key for value in values), 0

    def _takers(self, count: int) -> list[Input]:
        return self._inputs or [Input(spec, self._options) for spec in open_inputs(count)]

    def _may_reply(self, reply: bytes) -> bool:
        return reply.startswith(self._reply_prefixes) and len(reply) <= keys.MAX_URI_BYTES

    def _plan(self, names: tuple[bytes, ...]) -> _Plan:
        at = {name: 2 * index + 1 for index, name in enumerate(names)}
        given: dict[str, dict[bytes, int]] = {}
        for name, index in at.items():
            for kind in _KINDS:
                if name.startswith(kind):
                    given.setdefault(name[len(kind) :].decode(errors="replace"), {})[kind] = index
        fault = None
        try:
            inputs = self._bind(given)
        except CodecError as error:
            inputs, fault = [], str(error)
        takers = self._takers(len(inputs))
        plain = all(set(parts) == {keys.TENSOR} for parts in inputs) and keys.DATA not in at
        plan = _Plan(
            uri=at.get(keys.URI, -1),
            reply=at.get(keys.REPLY, -1),
            deadline=at.get(keys.DEADLINE, -1),
            traceparent=at.get(keys.TRACEPARENT, -1),
            data=at.get(keys.DATA, -1),
            serde=at.get(keys.SERDE, -1),
            inputs=inputs,
            tensors=[(taker, parts[keys.TENSOR]) for taker, parts in zip(takers, inputs, strict=False)]
            if plain and not self._options.raw
            else [],
            takers=takers,
            fault=fault,
        )
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        if sum(map(len, names)) <= _MAX_NAMES_BYTES:
            self._plans[names] = plan
        return plan

    def _bind(self, given: Mapping[str, T]) -> list[T]:
        """The given values in the order of the model's inputs: by name where the names match, else by position."""
        if self._options.raw or (given and not self._inputs):
            return list(given.values())
        if given and set(given) == self._names:
            return [given[taker.spec.name] for taker in self._inputs]
        if given and len(given) == len(self._inputs) and not self._names & set(given):
            return list(given.values())
        has = ", ".join(repr(name) for name in given) or "none"
        raise CodecError(f"the record's inputs are {has}; the model takes {self._takes or 'one or more tensors'}")

    def _native(self, plan: _Plan, fields: Sequence[bytes]) -> list[InputValue]:
        if plan.fault:
            raise CodecError(plan.fault)
        if self._options.raw:
            return [
                raw_record({name: value for name, value in zip(*[iter(fields)] * 2, strict=True) if _is_input(name)})
            ]
        values: list[InputValue] = []
        for taker, parts in zip(plan.takers, plan.inputs, strict=True):
            tensor = parts.get(keys.TENSOR)
            values.append(_not_tensor(taker, parts, fields) if tensor is None else taker.tensor_message(fields[tensor]))
        return values

    def _original(self, plan: _Plan, fields: Sequence[bytes]) -> list[InputValue]:
        if plan.serde >= 0 and fields[plan.serde] == b"stream":
            columns = original.decode_json_record(fields[plan.data])
        else:
            columns = original.decode_record(fields[plan.data], self._options.sparse_layout)
        if self._options.raw:
            return [raw_record(dict(original_field(name, value, self._options.encrypted) for name, value in columns))]
        bound = self._bind(dict(columns))
        return [taker.original_value(value) for taker, value in zip(self._takers(len(bound)), bound, strict=True)]


def _is_input(field: bytes) -> bool:
    return field.startswith(_KINDS)


def late(by_ms: float, what: str) -> tuple[str, str]:
    """The error of a record whose deadline had passed, so many ms before something could happen."""
    return ErrorCode.DEADLINE_EXCEEDED, f"the deadline had passed {by_ms:.0f} ms before {what}"


def _is_open(deadline: bytes, now_ms: float) -> bool:
    """Whether this is a deadline, and still to come."""
    return deadline.isdigit() and len(deadline) < _DEADLINE_DIGITS and int(deadline) >= now_ms


def _is_uri(uri: bytes) -> bool:
    try:
        _check_uri(uri)
    except CodecError:
        return False
    return True


def _check_uri(uri: bytes) -> None:
    if not 0 < len(uri) <= keys.MAX_URI_BYTES:
        raise CodecError(f"the record's uri has {len(uri)} bytes, it must have 1 to {keys.MAX_URI_BYTES}")
    try:
        uri.decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"the record's uri is not UTF-8: {error}") from error


def _deadline_ms(field: bytes) -> int:
    if not field.isdigit() or len(field) >= _DEADLINE_DIGITS:
        raise CodecError(f"the record's deadline is {field[:40]!r}, not a whole number of milliseconds of Unix time")
    return int(field)


def _not_tensor(taker: Input, parts: Mapping[bytes, int], fields: Sequence[bytes]) -> InputValue:
    content = {kind: fields[index] for kind, index in parts.items()}
    match content:
        case {keys.BOOL: message}:
            return taker.tensor(decode_tensor(message).astype(np.bool_))
        case {keys.IMAGE: encoded}:
            return taker.image(encoded)
        case {keys.STRING: encoded}:
            return taker.text(encoded)
        case {keys.SPARSE_INDICES: indices, keys.SPARSE_VALUES: values, keys.SPARSE_SHAPE: shape}:
            return taker.sparse(decode_tensor(indices), decode_tensor(values), decode_tensor(shape))
        case _:
            names = ", ".join(kind.decode() + taker.spec.name for kind in parts)
            raise CodecError(f"a sparse tensor needs its indices, values and shape; the record has only {names}")
