"""Engine and precision that run a model.

native     the backend of the model's format
openvino   OpenVINO, with the names, the order and the dtypes of the native backend
f32, bf16  precision of the computation in either engine
int8       OpenVINO, on a model that is quantised with the user's own data, and proven with them (int8.py)
auto       all possible runtimes run the same batches, and the fastest is chosen among the runtimes with outputs close enough to
           the outputs of native in f32
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from cluster_serving.client.extras import install_command
from cluster_serving.node.engines.agreement import Judged
from cluster_serving.node.engines.batching import Batching, declare, rows_first, settle, sized, with_rows_first
from cluster_serving.node.engines.calibration import different_rows, samples
from cluster_serving.node.engines.chosen_outputs import ChosenOutputs
from cluster_serving.node.engines.kept_proofs import NOTHING_KEPT, KeptProofs
from cluster_serving.node.engines.precision import has_bfloat16, possible
from cluster_serving.node.engines.proof import ROWS, Proof, prove
from cluster_serving.node.engines.trials import REFERENCE, Trials, best, time_alone, try_all
from cluster_serving.node.engines.warm_up import fixed_batch
from cluster_serving.node.models import detect
from cluster_serving.node.models.allocator import give_back
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError
from cluster_serving.node.models.calibration_data import data_hash
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime, TriedRuntime

log = structlog.get_logger(__name__)

_DEFAULT_TRIALS = Trials()
_LARGE_ROW_BYTES = 16 << 20


class Loaded(NamedTuple):
    """Loaded model, its runtime and batching, and the runtimes that were tried. `candidates` is empty without a choice."""

    backend: Backend
    runtime: Runtime
    batching: Batching
    candidates: tuple[TriedRuntime, ...] = ()


def load(
    detected: Detected,
    options: LoadOptions,
    runtime: Runtime,
    batch: int,
    trials: Trials = _DEFAULT_TRIALS,
    bfloat16: bool | None = None,
    kept: KeptProofs = NOTHING_KEPT,
) -> Loaded:
    """Load a model with the configured runtime, or with the best runtime for `auto`.

    Args:
        detected: the model on disk.
        options: options for all runtimes. The precision in `options` does not count.
        runtime: configured engine and precision.
        batch: rows of a trial batch. A model made for a fixed batch gets the fixed batch.
        trials: data and tolerance of the trials.
        bfloat16: whether the CPU has bfloat16. `None`: ask the kernel.
        kept: kept proofs of the model. Without a kept proof for the runtime, rows are run alone and together here.

    Raises:
        ModelError: the native backend cannot load the model, no configured runtime can load it, or the data do not fit the model.
    """
    bfloat16 = has_bfloat16() if bfloat16 is None else bfloat16
    wanted = possible(detected.backend, runtime, bfloat16, runtime.precision == "auto" and _tries_int8(trials, kept))
    if runtime.precision == "bf16" and not bfloat16:
        log.warning("this CPU has no bfloat16: it is imitated, slower than float32; set precision: auto")
    maker = _Maker(detected, options, batch, trials, kept)
    candidates: tuple[TriedRuntime, ...] = ()
    chosen = wanted[0]
    if len(wanted) > 1:
        maker.keep_native()
        candidates = try_all(maker.make, wanted, batch, trials, maker.judged)
        chosen = best(candidates) or chosen
        log.info("runtime chosen", engine=chosen.engine, precision=chosen.precision)
    backend = maker.make(chosen)
    if runtime.precision == "int8" and (judged := maker.judged.get(chosen)) is not None:
        if judged.refused:
            raise ModelError(
                f"precision is int8, and INT8 is refused: {'; '.join(filter(None, (judged.refused, judged.note)))}"
            )
        candidates = (judged.over(TriedRuntime(chosen.engine, chosen.precision, time_alone(backend, batch, trials))),)
    batching = settle(backend, maker.batching, options)
    del maker  # frees the native backend, unless it was chosen
    if len(wanted) > 1:
        give_back()
    if batching.mode == "rows" and batch > 1:
        proof = kept.find(chosen)
        if proof is None and (proof := _proof(backend, trials)) is not None:
            kept.keep(chosen, proof)
        batching = batching if proof is None else batching.proven(proof, options.batching)
    return Loaded(backend, chosen, batching, candidates)


def _proof(backend: Backend, trials: Trials) -> Proof | None:
    """Return whether rows of the user's own data, or made-up rows, may share a batch. `None`: the rows tell nothing."""
    fixed = fixed_batch(backend)
    count = min(ROWS, fixed or ROWS)
    run_rows = sized(rows_first(backend), fixed)
    for rows in _rows(backend, trials, count) if count > 1 else ():
        try:
            proof = prove(run_rows, rows, trials.tolerance)
        except Exception as error:  # a model may raise anything on made-up rows
            log.debug("batching is not proven with made-up rows", reason=" ".join(str(error).split()))
            continue
        if proof is not None:
            return proof
    return None


def _rows(backend: Backend, trials: Trials, count: int) -> Iterator[dict[str, Array]]:
    """Yield arrays of different rows, rows in front: of the user's own data, then made up."""
    if trials.data:
        with suppress(ModelError):  # without a choice of runtimes, the data need not fit
            arrays = samples(Path(trials.data), backend.inputs, trials.images, count)
            yield with_rows_first(arrays, backend.inputs)
    large = sum(spec.row_bytes for spec in backend.inputs) > _LARGE_ROW_BYTES
    yield from different_rows(backend.inputs, 2 if large else count)


def _tries_int8(trials: Trials, kept: KeptProofs) -> bool:
    """Return whether `auto` tries INT8, and log why not."""
    lacking = ""
    if not trials.data:
        lacking = "set calibrationData"
    elif not find_spec("nncf") and not _is_in_int8(trials, kept):
        lacking = install_command("int8")
    if lacking and trials.may_keep:
        log.info("INT8 is not tried", needs=lacking)
    return trials.may_keep and not lacking


def _is_in_int8(trials: Trials, kept: KeptProofs) -> bool:
    """Return whether a model in INT8 is kept, which runs without NNCF."""
    if not find_spec("openvino"):
        return False
    from cluster_serving.node.engines import int8

    return int8.is_kept(kept.int8_folder(data_hash(trials.data, trials.metric)))


@contextmanager
def _openvino_needed() -> Generator[None]:
    try:
        yield
    except ImportError as error:
        raise ModelError(
            f"the engine openvino needs the package openvino, which cannot be imported here ({error}): "
            f"{install_command('openvino')}, or set engine: native"
        ) from error


class _Maker:
    """Loader of one model for several runtimes in turn.

    Attributes:
        batching: batching by the inputs, known once the native backend has been loaded.
        judged: judgements of the runtimes in INT8 that were made.
    """

    def __init__(self, detected: Detected, options: LoadOptions, batch: int, trials: Trials, kept: KeptProofs) -> None:
        self._detected = detected
        self._options = options
        self._batch = batch
        self._trials = trials
        self._kept = kept
        self._native: Backend | None = None
        self.batching = Batching("rows")
        self.judged: dict[Runtime, Judged] = {}

    def keep_native(self) -> None:
        """Load the native backend in float32 now, once for all conversions."""
        self._native = self._load(REFERENCE)

    def make(self, runtime: Runtime) -> Backend:
        """Load the model for a runtime, ready to run."""
        backend = self._load(runtime)
        if self._options.outputs and self._detected.backend != "tensorflow":  # tensorflow cuts its graph to them
            return ChosenOutputs(backend, self._options.output_names)
        return backend

    def _load(self, runtime: Runtime) -> Backend:
        options = msgspec.structs.replace(self._options, precision=runtime.precision)
        if runtime.precision == "int8":
            return self._in_int8(runtime)
        if self._native is not None and runtime == REFERENCE:
            return self._native
        if runtime.engine == "native" or self._detected.backend == "openvino":
            return self._declared(options)
        native = self._native or self._declared(options)
        with _openvino_needed():
            from cluster_serving.node.engines import conversion
        return conversion.convert(self._detected, native, options)

    def _in_int8(self, runtime: Runtime) -> Backend:
        if not self._trials.data:
            raise ModelError(
                "precision is int8, which needs records of yours to calibrate and to judge: set calibrationData"
            )
        if not self._trials.may_keep:
            raise ModelError(
                "precision is int8, which writes the model to the disk, and the model is encrypted: set precision: f32"
            )
        with _openvino_needed():
            from cluster_serving.node.engines import conversion, int8
        native = self._native or self._load(REFERENCE)
        converted = conversion.as_openvino(self._detected, native)
        folder = self._kept.int8_folder(data_hash(self._trials.data, self._trials.metric))
        backend, self.judged[runtime] = int8.in_int8(
            native, converted, self._options, self._batch, self._trials, folder
        )
        return backend

    def _declared(self, options: LoadOptions) -> Backend:
        backend = detect.load(self._detected, options)
        self.batching = declare(backend, options)
        return backend
