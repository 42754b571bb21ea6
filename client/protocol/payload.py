"""Form of a job's tensors on the wire: in fewer bytes, where the model sees the same values and the way takes no longer. No I/O.

    tensor ──► in the dtype that the model takes ──► as uint8, if every value is a whole number from 0 to 255 ──► compressed
               the node would convert it too         the node converts it back                                  if a sample pays

Every second the heartbeats of the job's nodes are read. They have the dtypes that the model takes, and the codecs that the nodes
read. As long as a node is unknown, older, or of another model than the rest, tensors are sent as they are.

A sample pays if compression and decompression take less time than the saved bytes would have taken on their way. The time on the
way is measured by a PING with a payload, which goes to Redis and back as a record goes to Redis and on to a node. So compression
begins where Redis or the network is short, and not where the cores are.
"""

import math
import time
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, InvalidValue
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import Dialect, Fields
from cluster_serving.client.protocol.resp import Argument
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.tracebacks import warn
from cluster_serving.client.wire.compression import Codec, compress, restore
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.tensors import Array, encode_tensor, tensor_layout

_ASK_EVERY_S = 1.0  # a node tells its codecs when it starts, and reads records only when its model is loaded
_PROBE_EVERY_S = 60.0
_PROBES = 3
_PROBE_BYTES = 1 << 19
_LEAST_BYTES = 1024  # a smaller tensor costs Redis next to nothing
_HEAD = 256  # values that are looked at before all values are
_SAMPLE_PARTS, _PART_BYTES = 4, 1 << 14
_SAMPLE_EVERY = 512  # tensors of one input and size
_MOST_VERDICTS = 1024

Questions = Generator[tuple[Argument, ...], Any, None]
"""Commands to Redis, each answered by its reply."""


class _Known(NamedTuple):
    """Facts that all nodes of a job have in common."""

    inputs: Sequence[TensorSpec]
    compress: bool

    def input(self, name: str) -> TensorSpec | None:
        """Return the input of the model that a value with the given name is for, if the name or the number of inputs tells."""
        if len(self.inputs) == 1:
            return self.inputs[0]
        return next((spec for spec in self.inputs if spec.name == name), None)


_UNKNOWN = _Known((), compress=False)


class Payload:
    """Form of the tensors of one job. Safe for use by several threads.

    Args:
        job: name of the job.
        codec: codec for tensors that shrink.
    """

    def __init__(self, job: str, codec: Codec) -> None:
        self._job = job
        self._codec: Codec = codec
        self._known = _UNKNOWN
        self._ask_s = self._probe_s = -math.inf
        self._way_s = 0.0
        self._verdicts: dict[tuple[bytes, int], tuple[bool, int]] = {}
        self._told = False

    def is_due(self, now_s: float) -> bool:
        """Return whether the nodes are to be asked for again, at a time on the monotonic clock."""
        return now_s >= self._ask_s

    def questions(self, now_s: float) -> Questions:
        """Ask for the nodes of the job, and for the time of bytes on their way. If the questions break off, no node is known."""
        self._ask_s = now_s + _ASK_EVERY_S
        known = _UNKNOWN
        try:
            listed = yield "ZRANGE", keys.NODES, "0", "-1"
            of_job = [key for key in listed if key.startswith(keys.node_key(self._job, "").encode())]
            beats = (yield ("MGET", *of_job)) if of_job else []
            if now_s >= self._probe_s:
                empty_s = yield from _time_of("")
                self._way_s = max(0.0, (yield from _time_of("x" * _PROBE_BYTES)) - empty_s) / _PROBE_BYTES
                self._probe_s = now_s + _PROBE_EVERY_S
            known = self._read([beat for beat in beats if beat is not None])
        finally:
            self._known = known

    def refused(self, refusal: RedisRefused) -> None:
        """Warn once that Redis has refused a question."""
        if not self._told:
            self._told = True
            warn(
                f"tensors of the job {self._job} are sent as they are: compress needs the right to read the heartbeats of its "
                f"nodes, and Redis says: {refusal}"
            )

    def packed(self, fields: Fields) -> Fields:
        """Return the fields of a record in the native dialect, with its tensors in fewer bytes where that pays."""
        known = self._known
        packed = fields
        for at in range(0, len(fields), 2):
            field, content = fields[at : at + 2]
            if len(content) < _LEAST_BYTES or not field.startswith((keys.TENSOR, keys.BOOL)):
                continue
            if packed is fields:
                packed = list(fields)
            packed[at : at + 2] = self._smallest(field, content, known)
        return packed

    def _read(self, beats: Sequence[bytes]) -> _Known:
        """Return the facts that the nodes with these heartbeats have in common."""
        try:
            nodes = [Heartbeat.decode(beat) for beat in beats]
        except msgspec.MsgspecError:
            return _UNKNOWN
        if not nodes:
            return _UNKNOWN
        inputs = nodes[0].inputs
        # Code of the user's own sees the dtype that a program sends.
        is_one_model = all(node.inputs == inputs and not node.raw for node in nodes)
        return _Known(inputs if is_one_model else (), all(self._codec in node.codecs for node in nodes))

    def _smallest(self, field: bytes, content: bytes, known: _Known) -> tuple[bytes, bytes]:
        kind, _, name = field.partition(b":")
        layout = tensor_layout(content)
        if layout is None:
            return field, content
        array: Array = np.ndarray(layout.shape, layout.dtype, content, layout.offset)
        if kind + b":" == keys.BOOL:
            array = array.view(np.bool_)
        elif (spec := known.input(name.decode())) is not None:
            narrow = narrowed(array, spec)
            content = content if narrow is array else encode_tensor(narrow)
            array = narrow
        if known.compress and self._pays(field, array):
            compressed = compress(array, self._codec)
            if len(compressed) < array.nbytes:
                return keys.COMPRESSED + name, compressed
        return field, content

    def _pays(self, field: bytes, array: Array) -> bool:
        """Return whether tensors of this input and size are compressed, by a sample of each 512th."""
        key = field, array.nbytes
        pays, left = self._verdicts.get(key, (False, 0))
        if not left:
            pays, left = self._sample_pays(array), _SAMPLE_EVERY
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
        self._verdicts[key] = pays, left - 1
        return pays

    def _sample_pays(self, array: Array) -> bool:
        sample = _sample(array)
        took_s = math.inf
        content = b""
        for _ in range(_PROBES):
            begun_s = time.perf_counter()
            content = compress(sample, self._codec)
            restore(content, sample.nbytes)
            took_s = min(took_s, time.perf_counter() - begun_s)
        return took_s < (sample.nbytes - len(content)) * self._way_s


def check_codec(codec: str | None, dialect: Dialect) -> Codec | None:
    """Return the codec with the given name, or None for none.

    Raises:
        InvalidValue: there is no codec with the name, or the dialect has no compressed tensors.
    """
    match codec:
        case None:
            return None
        case "lz4" | "zstd" if dialect == "native":
            return codec
        case "lz4" | "zstd":
            raise InvalidValue("compress needs the native dialect: servers of the original read no compressed tensors")
        case _:
            raise InvalidValue(f"compress is 'lz4' or 'zstd', not {codec!r}")


def narrowed(array: Array, spec: TensorSpec) -> Array:
    """Return a tensor in fewer bytes, if a node makes the same values of it for the model, else the tensor itself.

    Args:
        array: numbers of any shape, in C order.
        spec: input of the model that the tensor is for.
    """
    if not spec.is_numeric:
        return array
    narrow = array
    if np.dtype(spec.dtype).itemsize < array.itemsize:
        try:
            narrow = spec.converted(array)
        except CodecError:  # the node answers the record with the reason
            return array
    values = narrow.reshape(-1)
    if values.itemsize > 1 and _are_bytes(values[:_HEAD]) and _are_bytes(values):
        return narrow.astype(np.uint8)
    return narrow


def _are_bytes(values: Array) -> bool:
    """Return whether values become the same bits again by way of uint8, which -0.0 does not."""
    with np.errstate(invalid="ignore"):
        again = values.astype(np.uint8).astype(values.dtype)
    bits = f"u{values.itemsize}"
    return np.array_equal(again.view(bits), values.view(bits))


def _sample(array: Array) -> Array:
    """Return up to 64 KiB of a tensor, in four parts from all over it."""
    values = array.reshape(-1)
    most = _PART_BYTES // values.itemsize
    if values.size <= _SAMPLE_PARTS * most:
        return values
    starts = np.linspace(0, values.size - most, _SAMPLE_PARTS, dtype=np.int64)
    return np.concatenate([values[start : start + most] for start in starts])


def _time_of(payload: str) -> Generator[tuple[Argument, ...], Any, float]:
    """Return the seconds that a PING with a payload takes, the least of several."""
    least_s = math.inf
    for _ in range(_PROBES):
        begun_s = time.perf_counter()
        yield "PING", payload
        least_s = min(least_s, time.perf_counter() - begun_s)
    return least_s
