"""A worker process: runs one copy of the model on the slots handed to the worker.

Inputs are views of the slot. Outputs are copied into the slot. Images and text are decoded here, in parallel over the workers.
A failed run is tried again in halves until the row at fault is alone, so that the row's neighbours get their answers. When the
outputs are full, the slot goes to the writer, and comes back with empty outputs and the rest of its rows.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import msgspec
import numpy as np
import structlog

from cluster_serving.node.engines.batching import Batching, rows_first, sized, with_rows_first
from cluster_serving.node.engines.engine import load
from cluster_serving.node.engines.kept_proofs import KeptProofs
from cluster_serving.node.engines.padding import LENGTHS, Padding
from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.engines.warm_up import fixed_batch, warm_up
from cluster_serving.node.models.base import Array, Backend, ModelError
from cluster_serving.node.models.sealed import opened, wait_for_secrets
from cluster_serving.node.processing.custom import load as load_processing
from cluster_serving.node.processing.labels import with_labels
from cluster_serving.node.processing.topn import parse_filter
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.deadline import too_late
from cluster_serving.node.ring.forecast import RowTimes
from cluster_serving.node.ring.metrics import BATCH_ROWS, FIRST_WORKER, INFERENCE, Count
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Outcome, OutcomesFullError, Slot
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.topology import cpulist, threads
from cluster_serving.node.worker.first_rows import FirstRows
from cluster_serving.node.worker.inputs import ModelRun, SlotInputs
from cluster_serving.node.worker.outputs import OutputArea, SlotOutputs, failed, too_many_outputs
from cluster_serving.node.worker.poison import poisoned
from cluster_serving.node.worker.spec import WorkerSpec

log = structlog.get_logger(__name__)

_HASH_TURN_S = 0.005
_HINT = "; the model does not state its input shapes: if records carry the batch dimension, set batching: none"


class RowsDifferError(Exception):
    """The rows of a batch have other outputs than the same rows alone."""


class Worker:
    """Runs one copy of the model.

    Args:
        spec: settings of the worker.
        backend: loaded model.
        batching: whether records are rows of a batch.
        padding: padding of rows of different length. None: such rows run apart.
        row_output_bytes: bytes of the outputs of one row in the warm-up. 0: not known.
        keep_proof: keeps the proof by the first rows, for later workers.

    Attributes:
        raw: records are to come undecoded, for the user's `preprocess`.
        outputs: outputs of the model, as they are sent.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        backend: Backend,
        batching: Batching,
        padding: Padding | None,
        row_output_bytes: int,
        keep_proof: Callable[[Proof], None],
    ) -> None:
        lane = spec.lane
        self._me = spec.worker
        self._backend = backend
        self._padding = padding
        self._run_rows = padding.around(rows_first(backend)) if padding else rows_first(backend)
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.worker_bells[spec.worker])
        self._writer_bell = Bell(lane.writer_bell)
        self._reader_bell = Bell(lane.reader_bell)
        self._process = FIRST_WORKER + spec.worker
        self._count = self._ring.counters[self._process]
        self._measures = self._ring.measures[self._process]
        beat = partial(self._ring.beat, self._process)
        processing = load_processing(spec.processing, beat) if spec.processing else None
        self.raw = processing is not None and processing.has_preprocess
        calls = batching.mode == "none"
        self._contents = SlotInputs(
            backend.inputs, spec.trials.images, spec.record_secrets, processing, calls=calls, padding=padding
        )
        keep = with_labels(parse_filter(spec.post_processing), spec.labels)
        self._store = SlotOutputs(keep, processing, backend.outputs, in_float16=spec.output_dtype == "float16")
        self.outputs = self._store.outputs
        self._fixed = fixed_batch(backend)
        self._at_once = self._padded_to = self._fixed or (
            lane.geometry.batch if spec.deterministic and not calls else None
        )
        self._run_padded = sized(self._run_rows, self._padded_to)
        self._first_rows: dict[bool, FirstRows] = {}  # by whether a batch is padded: a model may ignore its mask
        self._keep_proof = keep_proof
        if batching.one_by_one:
            self._run_one_by_one()
        elif not calls and spec.options.batching == "auto":
            kinds = (False, True) if padding else (False,)
            self._first_rows = {kind: FirstRows(self._run_alone, spec.trials.tolerance) for kind in kinds}
        if self._store.keeps_all:
            told = sum(spec.row_bytes for spec in self.outputs)  # a call's own, without a batch dimension
            self._ring.row_output_bytes = max(self._ring.row_output_bytes, row_output_bytes, told)
        self._axes = {spec.name: spec.batch_axis for spec in backend.inputs}
        self._hint = _HINT if not calls and any(spec.shape is None for spec in backend.inputs) else ""
        self._row_times = RowTimes()
        self._stopping = False

    def stop(self, *_signal: object) -> None:
        """Make `run` return once no slot is waiting. Safe in a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Serve until stopped."""
        while True:
            slot = self._ring.oldest(State.READY, self._me)
            if slot is not None:
                self._ring.move("worker", slot, State.RUNNING)
                self._finish(self._ring.slots[slot])
                self._ring.move("worker", slot, State.DONE)
                self._ring.beat(self._process)
                self._writer_bell.ring()
                if self._ring.reader_wants:
                    self._reader_bell.ring()
            elif self._stopping:
                return
            else:
                self._bell.hear()

    def _finish(self, slot: Slot) -> None:
        """Give every row of a slot an outcome, or the first rows, as far as the outputs have room."""
        slot.begin()
        begun_s = time.perf_counter()
        ran = 0
        area = OutputArea(slot)
        while rows := slot.progress.next_run:
            self._ring.beat(self._process)
            rows = rows[: self._at_once]
            if row_bytes := self._ring.row_output_bytes:
                rows = rows[: area.rows(row_bytes)]
                if not rows:
                    break
            expired = self._too_late(slot, rows)
            decoding_s = time.perf_counter()
            runs, outcomes = self._contents.decode(slot, rows, [outcome.rows[0] for outcome in expired])
            self._count[Count.DECODE_US] += round((time.perf_counter() - decoding_s) * 1e6)
            outcomes += expired
            ran += sum(max(len(run.rows), self._padded_to or 0) for run in runs)
            for run in runs:
                outcomes += self._outcomes(run, area)
            next_row = _first_without(outcomes, rows) if area.full else rows.stop
            try:
                slot.add(outcomes, next_row, area.used)
            except OutcomesFullError as full:
                outcomes = outcomes[: full.fitting]
                if not outcomes and not slot.outcomes():
                    outcomes = [too_many_outputs(rows[0])]
                next_row = _first_without(outcomes, rows)
                slot.add(outcomes, next_row, area.used)
            if next_row < rows.stop:
                break
        took_s = time.perf_counter() - begun_s
        self._count[Count.BUSY_US] += round(took_s * 1e6)
        if ran and slot.deadline_ms and (row_ms := self._row_times.add(1000 * took_s, ran)):
            self._ring.row_ms = row_ms

    def _too_late(self, slot: Slot, rows: range) -> list[Outcome]:
        """Return the outcomes of rows that are too late to be begun.

        A row is too late when its deadline has passed. While a further slot waits for the worker, a row is also too late when its
        deadline would pass during the run. The reader has decided the same when the record was taken. The writer decides last,
        when the result is published.
        """
        needed_ms = self._ring.row_ms * len(rows)
        if not slot.deadline_ms or (now_ms := self._ring.redis_ms()) + needed_ms <= slot.deadline_ms:
            return []
        if self._ring.oldest(State.READY, self._me) is None:
            needed_ms = 0.0
        expired = [row for row in slot.table() if row.place in rows and 0 < row.deadline_ms < now_ms + needed_ms]
        return [
            Outcome([row.place], error=too_late(row.deadline_ms - now_ms, needed_ms, "a worker could begin with it"))
            for row in expired
        ]

    def _outcomes(self, run: ModelRun, area: OutputArea) -> list[Outcome]:
        """Run the model on the rows of a run, in halves after a failure, and return the outcomes of the rows that had room."""
        if area.full:
            return []
        if self._at_once and len(run.rows) > self._at_once:
            return self._halved(run, area)
        used = area.used
        self._ring.beat(self._process)
        self._count[Count.RUNS] += 1
        self._count[Count.ROWS] += len(run.rows)
        BATCH_ROWS.observe(self._measures, len(run.rows))
        try:
            begun_s = time.perf_counter()
            try:
                outputs = self._run_whole(run.inputs) if run.whole else self._run_padded(run.inputs, len(run.rows))
            finally:
                INFERENCE.observe(self._measures, time.perf_counter() - begun_s)
            first_rows = self._first_rows.get(LENGTHS in run.inputs)
            if first_rows is not None and len(run.rows) > 1 and first_rows.is_due():
                outputs = self._proven(first_rows, run, outputs)
            storing_s = time.perf_counter()
            outcomes = self._stored(run, outputs, area)
            self._count[Count.STORE_US] += round((time.perf_counter() - storing_s) * 1e6)
            ended = sum(len(outcome.rows) for outcome in outcomes)
            if ended and not run.whole:
                self._learn((area.used - used) // ended)
            return outcomes
        except (Exception, SystemExit) as error:  # every exception of a model is answered as a fault of a record
            area.used = used
            if len(run.rows) == 1:
                return [failed(run.rows[0], error, self._hint)]
        return self._halved(run, area)

    def _halved(self, run: ModelRun, area: OutputArea) -> list[Outcome]:
        return [outcome for half in run.halves() for outcome in self._outcomes(half, area)]

    def _stored(self, run: ModelRun, outputs: dict[str, Array], area: OutputArea) -> list[Outcome]:
        """Store the outputs of a run, of each length apart, and return the outcomes of the rows that had room."""
        if self._padding is None or LENGTHS not in run.inputs:
            return self._store.store(area, run, outputs)
        outcomes: list[Outcome] = []
        for places, arrays in self._padding.parts(run.inputs[LENGTHS], outputs):
            if area.full:
                break
            outcomes += self._store.store(area, ModelRun([run.rows[place] for place in places], {}), arrays)
        return outcomes

    def _proven(self, first_rows: FirstRows, run: ModelRun, outputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs of one of the first batches.

        Raises:
            RowsDifferError: rows alone have other outputs. From now on, rows are run one by one.
        """
        known = msgspec.json.decode(self._ring.proof or b"{}", type=Proof)
        outputs = {name: array.copy() for name, array in outputs.items()}  # the next run may reuse the memory
        proof = known if known.fault else first_rows.proof(run.inputs, outputs)
        if proof is None:
            return outputs
        del self._first_rows[LENGTHS in run.inputs]
        self._keep_proof(proof)
        if not proof.fault:
            self._ring.proof = self._ring.proof or msgspec.json.encode(proof)
            return outputs
        if proof != known:
            self._ring.proof = msgspec.json.encode(proof)
            log.warning("rows are run one by one, because a batch gives other results", why=proof.fault)
        self._run_one_by_one()
        raise RowsDifferError(proof.fault)

    def _run_alone(self, inputs: dict[str, Array], rows: int) -> dict[str, Array]:
        """Run the model on a row for a proof."""
        self._ring.beat(self._process)
        return sized(self._run_rows, self._fixed)(inputs, rows)

    def _run_one_by_one(self) -> None:
        self._at_once, self._padded_to, self._first_rows = 1, self._fixed, {}
        self._run_padded = sized(self._run_rows, self._fixed)

    def _learn(self, row_bytes: int) -> None:
        """Note the bytes that the outputs of a row take, so that later batches fit. Larger earlier values fade step by step."""
        known = self._ring.row_output_bytes
        if row_bytes != known:
            self._ring.row_output_bytes = max(row_bytes, known - known // 8 - 1)

    def _run_whole(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Run the model on a batch as it is. A model with a limited number of rows runs as often as necessary."""
        at_once, axes = self._at_once, self._axes
        sizes = {array.shape[axis] for name, array in inputs.items() if (axis := axes.get(name, 0)) is not None}
        if not at_once or sizes == {self._fixed or at_once}:  # a model made for so many rows may mix them by design
            return self._backend.run(inputs)
        batch, rows = with_rows_first(inputs, self._backend.inputs), max(sizes)
        parts: list[dict[str, Array]] = []
        for start in range(0, rows, at_once):
            part = {name: np.ascontiguousarray(array[start : start + at_once]) for name, array in batch.items()}
            outputs = self._run_padded(part, min(at_once, rows - start))
            parts.append({name: array.copy() for name, array in outputs.items()})  # the next run may reuse the memory
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        axes = {spec.name: spec.batch_axis for spec in self._backend.outputs}
        return {
            name: array[0, ...] if (axis := axes.get(name, 0)) is None else np.moveaxis(array, 0, axis)
            for name, array in joined.items()
        }


def main(spec: WorkerSpec, ready: Callable[..., None]) -> None:
    """Load and warm the model, and run a worker until SIGTERM."""
    batch = spec.lane.geometry.batch
    with ExitStack() as stack:
        model = spec.model
        if spec.model_secrets is not None:
            model = stack.enter_context(opened(model, wait_for_secrets(spec.lane.redis, log.info, spec.model_secrets)))
        kept = KeptProofs(spec.proof_directory, spec.proof_conditions, partial(_model_hash, spec.lane))
        backend, runtime, batching, candidates = load(model, spec.options, spec.runtime, batch, spec.trials, kept=kept)
        if spec.padding and batching.mode == "none":
            raise ModelError(f"padding needs rows that share a batch, and this model has {batching.described()}.")
        padding = Padding(backend, spec.padding) if spec.padding else None
        before = threads.times()
        row_output_bytes = warm_up(backend, 1 if batching.one_by_one else batch)
    seen = threads.look(before)
    check_threads(seen, spec.options.threads)
    model_backend, keep_proof = poisoned(backend, os.environ), partial(kept.keep, runtime)
    worker = Worker(spec, model_backend, batching, padding, row_output_bytes, keep_proof)
    signal.signal(signal.SIGTERM, worker.stop)
    ready(
        inputs=backend.inputs,
        outputs=worker.outputs,
        runtime=runtime,
        batching=batching,
        candidates=candidates,
        raw=worker.raw,
        threads=seen._asdict(),
    )
    worker.run()


def _model_hash(lane: LaneSpec) -> str:
    """Wait for the fingerprint of the model, which the supervisor computes while workers load. No record is served before."""
    ring = Ring(lane.geometry, lane.ring_fd)
    while (model_hash := ring.model_hash) is None:
        time.sleep(_HASH_TURN_S)
    return model_hash


def _first_without(outcomes: Sequence[Outcome], rows: range) -> int:
    """Return the first of the rows without an outcome. Later rows with an outcome run once more, behind that row."""
    ended = {row for outcome in outcomes for row in outcome.rows}
    return next((row for row in rows if row not in ended), rows.stop)


def check_threads(seen: threads.Threads, wanted: int) -> None:
    """Warn about a library with more threads than configured, with more threads than cores, or with threads on foreign cores."""
    if stray := set(seen.cores) - os.sched_getaffinity(0):
        log.warning(
            "threads of a library run on cores that are not this worker's; let the library pin no threads, by its own "
            "environment variable",
            cores=cpulist.written(seen.cores),
            not_ours=cpulist.written(stray),
        )
    if seen.excess(wanted):
        log.warning(
            "over-subscribed: threads wait for each other; set threadPerModel, or the library's own number of threads",
            computing=seen.computing,
            threads_per_model=wanted,
            cores=cpulist.written(seen.cores),
            threads=seen.total,
        )
