"""A shadow process: runs a share of the live records through the model as it is served, and in its native float32.

    ring ──copy──► row ──► model as served ──► outputs ─┐
                    └────► native, float32 ──► outputs ─┴► agree?  ──► counts in the ring ──► heartbeat

The process has copies of the model of its own, and runs only where processor time is left over: at idle priority, and not while the
node is throttled by a CPU limit. With busy cores it compares fewer records than its share.
"""

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import structlog

from cluster_serving.node.engines.accuracy import equal, largest
from cluster_serving.node.engines.agreement import Agreement, percent, same_arg_max
from cluster_serving.node.engines.batching import rows_first, sized
from cluster_serving.node.engines.engine import load
from cluster_serving.node.engines.kept_proofs import KeptProofs
from cluster_serving.node.engines.trials import REFERENCE
from cluster_serving.node.engines.warm_up import fixed_batch
from cluster_serving.node.models.base import Array, Backend, ModelError
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.processing.custom import load as load_processing
from cluster_serving.node.ring.metrics import FIRST_WORKER, Count
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.shadow.live_records import RingRecords, Row
from cluster_serving.node.shadow.spec import ShadowSpec
from cluster_serving.node.topology.cgroups import throttled_s
from cluster_serving.node.topology.idle import be_idle
from cluster_serving.node.worker.inputs import SlotInputs

log = structlog.get_logger(__name__)

_TURN_S, _SOON_S = 0.02, 0.002  # between two looks at the rings, and while rows are due
_FIRST_TO_GO = "1000"  # of all processes, when memory runs out (proc(5))
_MOST_DUE = 64.0
"""Records that are compared later at most, after a time without processor time."""
_QUIET_S = 60.0
"""Seconds between two messages about records that cannot be compared."""
_WINDOW = 500
"""Records after which the agreement of these records is judged."""

Outputs = Mapping[str, Array]


class Shares:
    """Draws the rows to compare, so that they are a share of all rows that workers run.

    Args:
        share: share of the rows, above 0 and up to 1.
        ran: returns the number of rows that workers have run.
    """

    def __init__(self, share: float, ran: Callable[[], int]) -> None:
        self._share = share
        self._ran = ran
        self._before = ran()
        self._due = 0.0
        self._random = Random()  # noqa: S311 - no secret

    def count(self) -> None:
        """Count the rows that were run since the last call."""
        ran = self._ran()
        self._due = min(_MOST_DUE, self._due + self._share * (ran - self._before))
        self._before = ran

    @property
    def are_due(self) -> bool:
        """True while a row is to be drawn from the next batch."""
        return self._due >= 1

    def draw(self, places: Sequence[int]) -> list[int]:
        """Return which rows of a batch to compare."""
        drawn = self._random.sample(places, min(len(places), int(self._due)))
        self._due -= len(drawn)
        return drawn


class Shadow:
    """Compares rows, and counts them in a ring.

    Args:
        served: returns the outputs of a row, as they are served.
        reference: returns the outputs of the same row in float32.
        agree: returns whether they agree.
        ring: takes the counts.
        wanted: `accuracyAgreement`, the share of rows that have to agree.
        job: name of the job.
    """

    def __init__(
        self,
        served: Callable[[Row], Outputs],
        reference: Callable[[Row], Outputs],
        agree: Callable[[Outputs, Outputs], bool],
        ring: Ring,
        wanted: float,
        job: str,
    ) -> None:
        self._served = served
        self._reference = reference
        self._agree = agree
        self._ring = ring
        self._wanted = wanted
        self._window = Agreement(0, 0)
        self._job = job
        self._told_s = -_QUIET_S

    def compare(self, row: Row) -> None:
        """Run a row through both, and count it. A row that fails is left out: its caller has the error of the worker."""
        try:
            agrees = self._agree(self._reference(row), self._served(row))
        except Exception as error:  # a model may raise anything
            if time.monotonic() - self._told_s >= _QUIET_S:
                self._told_s = time.monotonic()
                log.warning("the shadow cannot compare a record", reason=str(error))
            return
        self._ring.shadowed += 1
        self._ring.shadow_agreeing += agrees
        self._window = Agreement(self._window.agreeing + agrees, self._window.records + 1)
        if self._window.records == _WINDOW:
            self._tell(self._window)
            self._window = Agreement(0, 0)

    def _tell(self, window: Agreement) -> None:
        if window.share < self._wanted:
            log.warning(
                "answers differ from float32",
                agreeing=percent(window.share),
                records=window.records,
                accuracy_agreement=percent(self._wanted),
                mend=f"cluster-serving restart {shlex.quote(self._job)} --set engine=native --set precision=f32 --set shadow=0",
            )


class Judge:
    """Judge of outputs: by the arg max, or where an output has one value and no arg max, by `accuracyTolerance`.

    A value may differ by the tolerance, as a share of the largest finite value of its output so far. The user's metric does not
    count: it needs labels, which live records do not have.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._largest: dict[str, float] = {}

    def agree(self, expected: Outputs, found: Outputs) -> bool:
        """Return whether the outputs for one row agree."""
        return all(self._agrees({name: array}, {name: found[name]}) for name, array in expected.items())

    def _agrees(self, expected: Outputs, found: Outputs) -> bool:
        try:
            return bool(same_arg_max(expected, found)[0])
        except ModelError:  # the output has no arg max
            [(name, array)] = expected.items()
            return self._is_close(name, array, found[name])

    def _is_close(self, name: str, expected: Array, found: Array) -> bool:
        if expected.dtype.kind != "f":
            return bool((expected == found).all())
        self._largest[name] = max(self._largest.get(name, 0.0), largest(expected))
        with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity, which are equal
            is_close = np.abs(expected - found) <= self._tolerance * self._largest[name]
        return bool((equal(expected, found) | is_close).all())


def main(spec: ShadowSpec, ready: Callable[..., None]) -> None:
    """Load both models, and compare rows until killed."""
    be_idle()
    Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO, encoding="ascii")
    rings = [Ring.looked_at(fd) for fd in spec.ring_fds]
    own = Ring(rings[0].geometry, spec.ring_fds[0])
    served, reference = (_runner(spec, runtime) for runtime in (spec.runtime, REFERENCE))
    shadow = Shadow(served, reference, Judge(spec.trials.tolerance).agree, own, spec.trials.agreement, spec.job)
    shares = Shares(spec.share, lambda: sum(row[Count.ROWS] for ring in rings for row in ring.counters[FIRST_WORKER:]))
    processing = load_processing(spec.processing) if spec.raw else None
    live = RingRecords(rings, SlotInputs(spec.inputs, spec.trials.images, None, processing))
    ready()
    throttled = throttled_s()
    while True:
        shares.count()
        if shares.are_due:
            before, throttled = throttled, throttled_s()
            if throttled == before:
                for row in live.rows(shares.draw):
                    shadow.compare(row)
        time.sleep(_SOON_S if shares.are_due else _TURN_S)


def _runner(spec: ShadowSpec, runtime: Runtime) -> Callable[[Row], Outputs]:
    """Load the model, and return a function that runs it on one row."""
    kept = KeptProofs(spec.proof_directory, spec.proof_conditions, lambda: spec.model_hash)
    backend: Backend = load(spec.model, spec.options, runtime, spec.batch, spec.trials, kept=kept).backend
    run = sized(rows_first(backend), fixed_batch(backend))

    def outputs(row: Row) -> Outputs:
        found: Outputs = run({name: array[None] for name, array in row.items()}, 1)
        return {name: array.copy() for name, array in found.items()}  # the next run may reuse the memory

    return outputs
