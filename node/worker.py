"""A worker process: runs one copy of the model on the slots that it is given.

Inputs are views of the slot, outputs are copied into it. Images and text are decoded here, in parallel over the workers. When
a run fails, it is tried again in halves until the row at fault is alone: its neighbours get their answers.
"""

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.bell import Bell
from cluster_serving.node.layout import InputPlace, Layout, decode_layout
from cluster_serving.node.metrics import FIRST_WORKER, Count
from cluster_serving.node.models.base import Array, Backend, ModelError
from cluster_serving.node.models.detect import Detected, LoadOptions, load
from cluster_serving.node.processing.topn import Filter, apply, parse_filter
from cluster_serving.node.ring import Ring, State
from cluster_serving.node.slot import Outcome, Placed, Slot, array_at, cut
from cluster_serving.node.specs import WorkerSpec

log = structlog.get_logger(__name__)

_ALIGNMENT = 64
_MAX_LAYOUTS = 4096
_WARM_UP_S = 1.0
_SENDABLE = "fiub"
_LARGEST_ITEM = 8  # bytes: Arrow has no tensor of longer numbers


class _Run(NamedTuple):
    """Some rows of a slot that go through the model together, and the rows that could not."""

    rows: list[int]
    inputs: dict[str, Array]


class _ResultTooLargeError(Exception):
    pass


class Worker:
    """Runs one copy of the model."""

    def __init__(self, spec: WorkerSpec, backend: Backend) -> None:
        lane = spec.lane
        self._me = spec.worker
        self._backend = backend
        self._ring = Ring(lane.geometry, lane.ring_fd)
        self._bell = Bell(lane.worker_bells[spec.worker])
        self._writer_bell = Bell(lane.writer_bell)
        self._reader_bell = Bell(lane.reader_bell)
        self._count = self._ring.counters[FIRST_WORKER + spec.worker]
        self._contents = ContentDecoder(backend, spec.image_resize)
        self._filter = parse_filter(spec.post_processing)
        self._fixed = _fixed_batch(backend)
        self._stopping = False

    def stop(self, *_signal: object) -> None:
        """Return from `run` once no slot is waiting. Safe in a signal handler."""
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
                self._writer_bell.ring()
                if self._ring.reader_wants:
                    self._reader_bell.ring()
            elif self._stopping:
                return
            else:
                self._bell.hear()

    def _finish(self, slot: Slot) -> None:
        """Give every row of a slot an outcome."""
        slot.begin()
        while (count := slot.run_rows) > 0:
            first = slot.next_row
            count = min(count, self._fixed or count)
            rows = range(first, first + count)
            try:
                outcomes, used = self._run(slot, rows)
            except Exception as error:  # whatever a model raises belongs to the record that makes it raise
                if count > 1:
                    slot.isolate(count // 2)
                    continue
                outcomes, used = [Outcome([first], error=_describe(error))], slot.output_bytes
                slot.isolate(0)
            slot.add(outcomes, first + count, used)

    def _run(self, slot: Slot, rows: range) -> tuple[list[Outcome], int]:
        """Run the model on some rows; outcomes, and how far the outputs are in use."""
        runs, outcomes = self._contents.decode(slot, rows)
        used = slot.output_bytes
        for run in runs:
            self._count[Count.RUNS] += 1
            self._count[Count.ROWS] += len(run.rows)
            outputs = self._infer(run)
            if self._filter is None:
                outcome, used = _store_arrays(slot, run.rows, outputs, used)
            else:
                outcome, used = _store_values(slot, run.rows, outputs, self._filter, used)
            outcomes.append(outcome)
        return outcomes, used

    def _infer(self, run: _Run) -> Mapping[str, Array]:
        rows, inputs = len(run.rows), run.inputs
        if self._fixed and rows < self._fixed:
            inputs = {name: _padded(array, self._fixed) for name, array in inputs.items()}
        outputs = self._backend.run(inputs)
        expected = self._fixed or rows
        for name, array in outputs.items():
            if array.ndim == 0 or array.shape[0] != expected:
                raise ModelError(f"output {name!r} has shape {list(array.shape)} for a batch of {expected} rows")
            if array.dtype.kind not in _SENDABLE or array.dtype.itemsize > _LARGEST_ITEM:
                raise ModelError(f"output {name!r} is of dtype {array.dtype}, which cannot be sent")
        return {name: array[:rows] for name, array in outputs.items()} if self._fixed else outputs


class ContentDecoder:
    """From what lies in a slot to the arrays that the model takes."""

    def __init__(self, backend: Backend, image_resize: tuple[int, int] | None) -> None:
        self._specs = backend.inputs
        self._image_resize = image_resize
        self._layouts: dict[bytes, Layout] = {}
        self._fits: dict[str, Callable[[bytes], Array]] = {}

    def decode(self, slot: Slot, rows: range) -> tuple[list[_Run], list[Outcome]]:
        """Runs of rows with equal shapes, and errors for the rows whose contents are broken."""
        layout = self._layout(slot.signature)
        if not layout.has_heap:
            inputs = {
                spec.name: _view(slot, place, rows) for spec, place in zip(self._specs, layout.inputs, strict=True)
            }
            return [_Run(list(rows), inputs)], []
        spans = {row.place: row.spans for row in slot.table() if row.place in rows}
        groups: dict[tuple[tuple[int, ...], ...], list[tuple[int, list[Array]]]] = defaultdict(list)
        broken: list[Outcome] = []
        for row in rows:
            try:
                arrays = self._row(slot, layout.inputs, row, spans[row])
            except ValueError as error:
                broken.append(Outcome([row], error=(ErrorCode.INVALID_INPUT, cut(str(error)))))
            else:
                groups[tuple([array.shape for array in arrays])].append((row, arrays))
        return [self._stack(members) for members in groups.values()], broken

    def _layout(self, signature: bytes) -> Layout:
        layout = self._layouts.get(signature)
        if layout is None:
            if len(self._layouts) >= _MAX_LAYOUTS:
                self._layouts.clear()
            layout = self._layouts[signature] = decode_layout(signature)
        return layout

    def _stack(self, members: Sequence[tuple[int, list[Array]]]) -> _Run:
        columns = zip(*[arrays for _, arrays in members], strict=True)
        inputs = {spec.name: np.stack(column) for spec, column in zip(self._specs, columns, strict=True)}
        return _Run([row for row, _ in members], inputs)

    def _row(self, slot: Slot, places: Sequence[InputPlace], row: int, spans: Sequence[tuple[int, int]]) -> list[Array]:
        remaining = iter(spans)
        arrays: list[Array] = []
        for spec, place in zip(self._specs, places, strict=True):
            if place.kind == "tensor":
                arrays.append(_view(slot, place, range(row, row + 1))[0])
                continue
            start, length = next(remaining)
            content = bytes(slot.inputs[start : start + length])
            if place.kind == "string":
                arrays.append(np.array(msgspec.json.decode(content), dtype=object))
            else:
                arrays.append(self._image(spec.name, content))
        return arrays

    def _image(self, name: str, content: bytes) -> Array:
        fit = self._fits.get(name)
        if fit is None:
            # Imported with the first image: OpenCV takes 40 MB that a worker of tensors does not need.
            from cluster_serving.node.processing.image import ImageFit

            spec = next(spec for spec in self._specs if spec.name == name)
            fit = self._fits[name] = ImageFit(spec, self._image_resize)
        try:
            return fit(content)
        except ValueError as error:
            raise ValueError(f"input {name!r}: {error}") from error


def _view(slot: Slot, place: InputPlace, rows: range) -> Array:
    return array_at(
        slot.inputs, place.dtype, (len(rows), *place.row_shape), place.offset + rows.start * place.row_bytes
    )


def _fixed_batch(backend: Backend) -> int | None:
    """The one batch size that the model takes, or None."""
    fixed = {spec.shape[0] for spec in backend.inputs if spec.shape} - {None}
    return max(size for size in fixed if size is not None) if fixed else None


def _padded(array: Array, rows: int) -> Array:
    padded: NDArray[Any] = np.zeros((rows, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return padded


def _store_arrays(slot: Slot, rows: list[int], outputs: Mapping[str, Array], used: int) -> tuple[Outcome, int]:
    placed: list[Placed] = []
    for name, array in outputs.items():
        offset = -(-used // _ALIGNMENT) * _ALIGNMENT
        used = offset + array.nbytes
        if used > len(slot.outputs):
            raise _ResultTooLargeError(_too_large(slot))
        array_at(slot.outputs, array.dtype.str, array.shape, offset)[...] = array
        placed.append(Placed(name, array.dtype.str, array.shape[1:], offset))
    return Outcome(rows, outputs=placed), used


def _store_values(
    slot: Slot, rows: list[int], outputs: Mapping[str, Array], keep: Filter, used: int
) -> tuple[Outcome, int]:
    spans: list[tuple[int, int]] = []
    for index in range(len(rows)):
        value = msgspec.json.encode(apply(keep, {name: array[index] for name, array in outputs.items()}))
        if used + len(value) > len(slot.outputs):
            raise _ResultTooLargeError(_too_large(slot))
        slot.outputs[used : used + len(value)] = value
        spans.append((used, len(value)))
        used += len(value)
    return Outcome(rows, values=spans), used


def _too_large(slot: Slot) -> str:
    return f"the results do not fit into the {len(slot.outputs)} bytes of a slot (slotBytes in config.yaml)"


def _describe(error: Exception) -> tuple[str, str]:
    code = ErrorCode.RESULT_TOO_LARGE if isinstance(error, _ResultTooLargeError) else ErrorCode.INFERENCE_FAILED
    kind = "" if isinstance(error, (_ResultTooLargeError, ModelError)) else f"{type(error).__name__}: "
    return code, cut(f"{kind}{error}")


def warm_up(backend: Backend, batch: int) -> None:
    """Run the model on zeros, so that no request meets a first run.

    At the batch sizes 1, 2, 4, ... `batch`, then, for as long as a second lasts, at those between. A model with a free dimension
    besides the batch, or with text for input, is left cold: no shape is sure to be valid.

    Raises:
        ModelError: the model cannot run.
    """
    if any(spec.is_text or None in spec.row_shape for spec in backend.inputs):
        return
    fixed = _fixed_batch(backend)
    first = {fixed} if fixed else {batch, *(1 << power for power in range(batch.bit_length()))}
    for size in sorted(first):
        _run_on_zeros(backend, size)
    until_s = time.monotonic() + _WARM_UP_S
    for size in range(1, 1 if fixed else batch):
        if size not in first and time.monotonic() < until_s:
            _run_on_zeros(backend, size)


def _run_on_zeros(backend: Backend, rows: int) -> None:
    zeros = {spec.name: np.zeros((rows, *_known(spec.row_shape)), spec.dtype) for spec in backend.inputs}
    try:
        backend.run(zeros)
    except Exception as error:
        raise ModelError(f"the model fails on a batch of {rows} rows of zeros: {error}") from error


def _known(shape: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(dim for dim in shape if dim is not None)


def main(spec: WorkerSpec, ready: Callable[..., None]) -> None:
    """Load and warm the model, and run a worker until SIGTERM."""
    model = msgspec.convert(spec.model, Detected)
    backend = load(model, LoadOptions(spec.threads, spec.precision))
    warm_up(backend, spec.lane.geometry.batch)
    worker = Worker(spec, backend)
    signal.signal(signal.SIGTERM, worker.stop)
    ready(inputs=backend.inputs, outputs=backend.outputs)
    worker.run()
