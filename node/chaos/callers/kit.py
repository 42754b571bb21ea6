"""Kit of the callers: everything that a caller needs to know of a run."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from cluster_serving.client.protocol.requests import Dialect
from cluster_serving.client.wire.result import Result
from cluster_serving.node.chaos.learn import Answers

_ARRAY, _TEXTS = 1, 2  # codes of extension types


class Kit(NamedTuple):
    """Everything that a caller needs to know of a run.

    Attributes:
        url: Redis of the run.
        job: stream of the run.
        seed: seed of the run.
        timeout_s: seconds in which any record is answered, whatever the faults.
        inputs: inputs of each sample, as a program passes them.
        good: samples without an effect on the worker.
        answers: the model's own answers.
        sent: dialect and sample of each record of the load, for the harvest.
    """

    url: str
    job: str
    seed: int
    timeout_s: float
    inputs: Sequence[Mapping[str, Any]]
    good: Sequence[int]
    answers: Answers
    sent: Mapping[str, tuple[Dialect, int]] = {}

    def encode(self) -> bytes:
        """Return the kit as MessagePack. An array is an extension: dtype, shape and bytes, or shape and texts."""
        known = [
            (dialect, sample, result.outputs, result.filtered)
            for (dialect, sample), results in self.answers.known.items()
            for result in results
        ]
        return msgspec.msgpack.encode((*self[:-2], known, self.sent), enc_hook=_extension)

    @classmethod
    def decode(cls, data: bytes) -> "Kit":
        """Return the kit that `encode` has made into bytes."""
        url, job, seed, timeout_s, inputs, good, known, sent = msgspec.msgpack.decode(data, ext_hook=_array)
        answers = Answers()
        for dialect, sample, outputs, filtered in known:
            answers.learn(dialect, sample, Result("", outputs, filtered))
        return cls(url, job, seed, timeout_s, inputs, good, answers, sent)


def _extension(value: Any) -> msgspec.msgpack.Ext:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return msgspec.msgpack.Ext(_TEXTS, msgspec.msgpack.encode((array.shape, array.ravel().tolist())))
    return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode((array.dtype.str, array.shape, array.tobytes())))


def _array(code: int, data: memoryview) -> np.ndarray[Any, Any]:
    if code == _TEXTS:
        shape, texts = msgspec.msgpack.decode(data)
        return np.array(texts, dtype=object).reshape(shape)
    dtype, shape, content = msgspec.msgpack.decode(data)
    return np.frombuffer(content, dtype).reshape(shape)
