"""The heartbeat of a node: one flat JSON object. The node encodes it. Frontends, `status` and `chaos` decode it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec

from cluster_serving import __version__
from cluster_serving.client import keys
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.load import Load


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """Release of a node: the part of a heartbeat that every release writes and reads.

    Attributes:
        job: name of the job.
        node: name of the node.
        version: version of Cluster Serving. The first heartbeats have none.
        wire: newest form of replies that the node writes.
    """

    job: str
    node: str
    version: str = ""
    wire: int = 1

    @property
    def is_own(self) -> bool:
        """True if this process is of the same release."""
        return (self.version, self.wire) == (__version__, keys.WIRE)

    @property
    def is_understood(self) -> bool:
        """True if this process and the node have a form of replies in common."""
        return keys.understood(self.wire)

    def __str__(self) -> str:
        return release(self.version, self.wire)

    @classmethod
    def read(cls, beat: bytes) -> "Release":
        """Return the release in a heartbeat of any release.

        Raises:
            msgspec.MsgspecError: it is no heartbeat.
        """
        return msgspec.json.decode(beat, type=Release)


def release(version: str = __version__, wire: int = keys.WIRE) -> str:
    """Return a release in words. Default: this one."""
    return f"{version or 'before 0.1.0'} (wire {wire})"


class Shadow(msgspec.Struct, frozen=True):
    """Comparison of live records with float32, since the last start or change of the node.

    Attributes:
        share: share of the records to compare, above 0 and up to 1.
        records: number of records that were compared.
        agreeing: number of records among them that agree.
        nothing: why no more records are compared. Empty: they are compared.
    """

    share: float
    records: int
    agreeing: int
    nothing: str = ""


_MOST = 1 << 53
"""Largest figure that is believed. Python cannot even make a float of every number that JSON can write."""

_Number = Annotated[float, msgspec.Meta(ge=-float(_MOST), le=float(_MOST))]
_Tally = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]


class Histogram(msgspec.Struct, frozen=True):
    """Histogram of a heartbeat, with one more bucket count than bounds.

    Raises:
        ValueError: the numbers of counts and bounds do not fit.
    """

    le: list[_Number]
    counts: list[_Tally]
    sum: _Number

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.le) + 1:
            raise ValueError(f"{len(self.counts)} counts for {len(self.le)} bounds")


class Heartbeat(Release, frozen=True, kw_only=True):
    """State of a node, and the figures since its start.

    Fields with a default may be missing in a heartbeat. Frontends need only the rest.

    Attributes:
        state: `starting`, `ready`, `unready` or `draining`.
        pid: process id of the supervisor.
        started_ms: Unix time of the start in milliseconds.
        model: path of the model's definition.
        model_hash: fingerprint of the model.
        backend: backend of the model, such as `onnx`.
        engine: runtime of the model.
        precision: precision of the model.
        candidates: runtimes that were tried beside the model's own.
        inputs: inputs of the model. Empty: any number of float32 tensors, or no worker has loaded the model yet.
        outputs: outputs of the model. Empty: known only after a run.
        raw: True if records go to the user's own `preprocess` as they are.
        already_batched: True if each record is a call of the model by itself.
        batching: `rows`, or `none` with the reason, for people.
        workers_alive: number of workers that are ready.
        workers: number of workers that are wanted.
        threads: threads of one worker.
        budget: cores that the node uses, for people.
        threads_computing: number of threads that compute, over all workers.
        batch_size: most rows of a batch.
        host: name of the machine.
        sockets: cores of each socket of the machine, such as `0-31,64-95`.
        answers_later: True if the node puts results into the hash of a call that is answered later.
        codecs: codecs of the compressed tensors that the node reads in records.
        full: reason for which no records are admitted. Empty: records are admitted.
        shadow: comparison of live records with float32. None: none is wanted.
        load: work of the last seconds. None: the node is of a release that does not tell.
        figures: every number of the heartbeat by name (`answered`, `workers_alive`, `backlog`, ...), and `histograms`, each a
            `Histogram`. A figure of a damaged heartbeat that is no number is left out.
    """

    state: str
    pid: int = 0
    started_ms: int
    model: str
    model_hash: str
    backend: str
    engine: str
    precision: str = ""
    candidates: Sequence[Any] = ()
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    raw: bool
    already_batched: bool
    batching: str = ""
    workers_alive: int = 0
    workers: int = 0
    threads: int = 0
    budget: str = ""
    threads_computing: int = 0
    batch_size: int
    host: str = ""
    sockets: tuple[str, ...] = ()
    answers_later: bool = False
    codecs: tuple[str, ...] = ()
    full: str = ""
    shadow: Shadow | None = None
    load: Load | None = None
    figures: Mapping[str, Any] = {}

    @property
    def is_callable(self) -> bool:
        """True while the node takes records, and its answers can be read."""
        return self.ready and self.is_understood

    @property
    def ready(self) -> bool:
        """True while the node takes records."""
        return self.state == "ready"

    @property
    def whole(self) -> bool:
        """True while the node takes records with all its workers."""
        return self.ready and self.workers_alive == self.workers

    def encode(self) -> bytes:
        """Return the JSON object, with the figures beside the fields."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        figures = fields.pop("figures")
        return msgspec.json.encode(fields | figures)

    @classmethod
    def decode(cls, beat: bytes) -> "Heartbeat":
        """Return the heartbeat of a JSON object.

        Raises:
            msgspec.MsgspecError: the heartbeat is not of this version.
        """
        fields = msgspec.json.decode(beat, type=dict[str, Any])
        return msgspec.convert({**fields, "figures": _figures(fields)}, cls)


def _figures(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that can be believed: readers add the figures of many nodes, and one must not spoil the others."""
    found = {name: value for name, value in fields.items() if _is_believed(name, value)}
    histograms = fields.get("histograms")
    found["histograms"] = {}
    for name, histogram in histograms.items() if isinstance(histograms, dict) else ():
        with suppress(msgspec.ValidationError):
            found["histograms"][name] = msgspec.convert(histogram, Histogram)
    return found


def _is_believed(name: str, value: object) -> bool:
    return abs(value) <= _MOST if isinstance(value, int | float) else name in Heartbeat.__struct_fields__
