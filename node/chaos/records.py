"""Records that a run sends: their kinds, their order and their fields on the wire. Pure."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from random import Random
from typing import Final

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.protocol.requests import Dialect, Fields, request_fields
from cluster_serving.client.wire.tensors import encode_tensor, tensor_header
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.chaos.samples import Sample
from cluster_serving.node.models.base import Array, TensorSpec


class RecordKind(StrEnum):
    """Kind of a record, named after its special property."""

    GOOD = "good"
    SLOW = "slow"  # good, and takes longer than the lease
    IMPATIENT = "impatient"  # good, and must be started within milliseconds
    EXPIRED = "expired"  # sent after its deadline
    RAISING = "raising"
    CRASHING = "crashing"
    HANGING = "hanging"
    MALFORMED = "malformed"


POISON: Final = (RecordKind.RAISING, RecordKind.CRASHING, RecordKind.HANGING)
RIGHT: Final = "right"
"""Outcome of a record with the same answer that the model gives before any fault."""

EXPECTED: Final[Mapping[RecordKind, frozenset[str]]] = {
    RecordKind.GOOD: frozenset({RIGHT}),
    RecordKind.SLOW: frozenset({RIGHT}),
    RecordKind.IMPATIENT: frozenset({RIGHT, ErrorCode.DEADLINE_EXCEEDED}),
    RecordKind.EXPIRED: frozenset({ErrorCode.DEADLINE_EXCEEDED}),
    RecordKind.RAISING: frozenset({ErrorCode.INFERENCE_FAILED}),
    RecordKind.CRASHING: frozenset({ErrorCode.WORKER_DIED, ErrorCode.DELIVERED_TOO_OFTEN}),
    RecordKind.HANGING: frozenset({ErrorCode.WORKER_HUNG, ErrorCode.WORKER_DIED, ErrorCode.DELIVERED_TOO_OFTEN}),
    RecordKind.MALFORMED: frozenset({ErrorCode.INVALID_INPUT}),
}
"""Allowed outcomes of each kind of record."""

_SPACING_S = 2.0
NO_URI: Final = "no uri"
"""Flaw of a record without a uri. Its answer is found under the id of its entry."""


class SentRecord(msgspec.Struct, frozen=True):
    """Record of a run.

    Attributes:
        uri: name of the record, even when it is sent without a uri.
        deadline_ms: Unix time of the deadline.
        life_ms: time until the deadline, counted from the moment when Redis takes the record.
        flaw: flaw of a malformed record.
    """

    uri: str
    kind: RecordKind
    sample: int
    dialect: Dialect = "native"
    replies: bool = False
    deadline_ms: int | None = None
    life_ms: int | None = None
    flaw: str = ""


class Pools(msgspec.Struct, frozen=True):
    """Samples of each kind of record. Without poison, `magic` is empty and all samples are good."""

    good: Sequence[int]
    magic: Mapping[RecordKind, Sequence[int]]
    dialects: Sequence[Dialect]
    flaws: Sequence[str]


class Mix:
    """Sequence of records. The same seed gives the same records in the same order."""

    def __init__(self, seed: int, seconds: float, pools: Pools) -> None:
        self._rng = Random(f"records {seed}")  # noqa: S311 - not for secrets
        self._pools = pools
        self._due: list[tuple[float, RecordKind]] = []  # times of costly records
        if pools.magic:
            # Hanging records come early, because a node waits for them again and again.
            many = {
                RecordKind.SLOW: (seconds / 12, 1.0),
                RecordKind.CRASHING: (seconds / 15, 0.8),
                RecordKind.HANGING: (seconds / 40, 0.5),
            }
            self._due = sorted(
                (self._rng.uniform(0, until * seconds), kind)
                for kind, (count, until) in many.items()
                for _ in range(max(1, int(count)))
            )
        self._next_costly_s = 0.0
        self._numbers: dict[RecordKind, int] = {}
        self._count = 0

    def next(self, at_s: float, now_ms: int) -> SentRecord:
        """Return the record that is sent `at_s` seconds after the start of the load, at `now_ms` Unix time."""
        pools, rng = self._pools, self._rng
        # Two costly records never share a batch, because the batch would have to be halved for each.
        if self._due and self._due[0][0] <= at_s and at_s >= self._next_costly_s:
            self._next_costly_s = at_s + _SPACING_S
            kind = self._due.pop(0)[1]
        else:
            chances = {
                RecordKind.GOOD: 90.0,
                RecordKind.MALFORMED: 4.0,
                RecordKind.EXPIRED: 2.0,
                RecordKind.IMPATIENT: 3.0,
            }
            if not pools.flaws:
                del chances[RecordKind.MALFORMED]
            if pools.magic:
                chances[RecordKind.RAISING] = 1.0
            kind = rng.choices(list(chances), list(chances.values()))[0]
        self._count += 1
        uri = f"{self._count}"
        if kind is RecordKind.MALFORMED:
            return SentRecord(uri, kind, rng.choice(pools.good), flaw=rng.choice(pools.flaws))
        if kind is RecordKind.EXPIRED:
            # A raising row reveals a node that runs the expired record.
            sample = rng.choice(pools.magic.get(RecordKind.RAISING) or pools.good)
            return SentRecord(
                uri, kind, sample, replies=rng.random() < 0.3, deadline_ms=now_ms - rng.randint(1, 60_000)
            )
        if kind is RecordKind.IMPATIENT:
            return SentRecord(uri, kind, rng.choice(pools.good), life_ms=rng.randint(2, 50))
        dialect = rng.choice(pools.dialects)
        if kind in pools.magic:
            number = self._numbers[kind] = self._numbers.get(kind, -1) + 1
            sample = pools.magic[kind][number % len(pools.magic[kind])]
        else:
            sample = rng.choice(pools.good)
        return SentRecord(uri, kind, sample, dialect, replies=dialect == "native" and rng.random() < 0.3)


class Encoder:
    """Encoder of records into fields.

    Args:
        samples: samples that the records refer to by index.
        reply: key of the reply stream.

    Attributes:
        inputs: inputs of each sample, as a program passes them.
    """

    def __init__(self, samples: Sequence[Sample], reply: str) -> None:
        self.inputs = samples
        self._reply = reply.encode()

    def fields(self, record: SentRecord) -> Fields:
        """Return the fields of a record's entry."""
        uri, sample = record.uri, self.inputs[record.sample]
        if record.flaw:
            return _FLAWS[record.flaw](uri, sample)
        # The original dialect has no arrays of strings, so its texts are sent as lists of strings.
        data = {
            name: list(value.ravel()) if record.dialect == "original" and value.dtype == object else value
            for name, value in sample.items()
        }
        fields = request_fields(record.dialect, uri, data)
        if record.replies:
            fields += (keys.REPLY, self._reply)
        if record.deadline_ms is not None:
            fields += (keys.DEADLINE, b"%d" % record.deadline_ms)
        if record.life_ms is not None:
            fields += (keys.DEADLINE, b"+%d" % record.life_ms)
        return fields


def flaws_for(inputs: Sequence[TensorSpec], *, own_processing: bool) -> list[str]:
    """Return the flaws that a node must report as an error.

    With the user's own `preprocess`, flaws of the inputs are left out, because the result is unknown.
    """
    always = [NO_URI, "a deadline that is no number", "broken Arrow", "broken JSON"]
    if own_processing:
        return always
    of_input = _OF_TEXT if inputs and inputs[0].is_text else _OF_TENSOR if inputs else []
    unknown = ["an unknown input"] if inputs else []
    similar = ["names like the model's"] if len(inputs) > 1 else []
    return [*always, "no inputs", *unknown, *similar, *of_input]


def _first_as(kind: bytes, content: Callable[[Array], bytes]) -> Callable[[str, Sample], Fields]:
    """Return a flaw: the first input goes into a field of this kind, with content made of its array."""

    def fields(uri: str, sample: Sample) -> Fields:
        (name, value), *others = sample.items()
        rest = encode_record(uri, dict(others)) if others else [keys.URI, uri.encode()]
        array = np.asarray(value)
        return [*rest, kind + name.encode(), content(array.view(np.uint8) if array.dtype == np.bool_ else array)]

    return fields


_OF_TENSOR: Final = ["a truncated tensor", "a shape that lies", "too many dimensions", "text for a number"]
_OF_TEXT: Final = ["a tensor for text", "text that is no JSON"]
_FLAWS: Final[Mapping[str, Callable[[str, Sample], Fields]]] = {
    NO_URI: lambda uri, sample: encode_record(uri, sample)[2:],
    "a deadline that is no number": lambda uri, sample: [keys.DEADLINE, b"tomorrow", *encode_record(uri, sample)],
    "broken Arrow": lambda uri, _: [keys.URI, uri.encode(), keys.DATA, b"/////wAAAA" * 3],
    "broken JSON": lambda uri, _: [keys.URI, uri.encode(), keys.DATA, b'{"instances": [{', keys.SERDE, b"stream"],
    "no inputs": lambda uri, _: [keys.URI, uri.encode()],
    "an unknown input": lambda uri, sample: encode_record(uri, {**sample, "no_such_input": np.zeros(2, np.float32)}),
    "names like the model's": lambda uri, sample: encode_record(
        uri, {name.swapcase() + ":0": value for name, value in reversed(list(sample.items()))}
    ),
    "a truncated tensor": _first_as(keys.TENSOR, lambda array: encode_tensor(array)[: -max(1, array.nbytes // 2)]),
    "a shape that lies": _first_as(
        keys.TENSOR, lambda array: tensor_header(array.dtype, (1000, *array.shape)) + array.tobytes()
    ),
    "too many dimensions": _first_as(keys.TENSOR, lambda array: encode_tensor(np.stack([array] * 2)[:, np.newaxis])),
    "text for a number": _first_as(keys.STRING, lambda _: b'"seven"'),
    "a tensor for text": _first_as(keys.TENSOR, lambda _: encode_tensor(np.zeros(3, np.float32))),
    "text that is no JSON": _first_as(keys.STRING, lambda _: b'["'),
}
