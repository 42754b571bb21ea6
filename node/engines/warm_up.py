"""First runs of a model, before any request."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import structlog

from cluster_serving.node.models.base import Array, Backend, ModelError, TensorSpec

log = structlog.get_logger(__name__)

_WARM_UP_S = 1.0


class TrialRun(NamedTuple):
    """Batch of inputs, and the outputs that the model returned."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


class MadeUpRunFailed(ModelError):
    """The model fails on made-up inputs.

    `is_certain`: the model can hardly run at all. Otherwise whole numbers or truth values, which may be indices, sizes or
    switches, can be the cause.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.is_certain = is_certain


def warm_up(backend: Backend, batch: int) -> int:
    """Run the model on zeros, so that no request meets a first run.

    The batch sizes are 1, 2, 4, ... `batch`, and then the sizes between, until a second has passed since the first run. A model
    with a free dimension besides the batch, or with text as input, is left cold, because no shape is sure to be valid. A model
    without a batch dimension runs once.

    Returns:
        Bytes of the outputs of one row, or of one call without a batch dimension. 0: the model was left cold.

    Raises:
        ModelError: the model cannot run.
    """
    fixed, until_s = fixed_batch(backend), time.monotonic() + _WARM_UP_S
    try:
        tried = trial(backend, fixed or 1)
    except MadeUpRunFailed as error:
        if error.is_certain:
            raise
        log.info("the model is not warmed up", reason=str(error))
        tried = None
    if tried is None:
        return 0
    if all(spec.batch_axis is None for spec in backend.inputs):
        return _bytes(tried.outputs)
    row_bytes = _bytes(tried.outputs) // (fixed or 1)
    first = set[int]() if fixed else {batch, *(1 << power for power in range(1, batch.bit_length()))} - {1}
    for size in sorted(first):
        if (tried := trial(backend, size)) is not None:
            row_bytes = _bytes(tried.outputs) // size
    for size in range(2, 2 if fixed else batch):
        if size not in first and time.monotonic() < until_s:
            trial(backend, size)
    return row_bytes


def _bytes(outputs: dict[str, Array]) -> int:
    return sum(array.nbytes for array in outputs.values())


def fixed_batch(backend: Backend) -> int | None:
    """Return the fixed batch size of the model, or `None` for a free batch size."""
    return next((spec.batch for spec in backend.inputs if spec.batch), None)


def filled(
    inputs: Sequence[TensorSpec], rows: int, fill: Callable[[tuple[int, ...], str], Array]
) -> dict[str, Array] | None:
    """Return a batch of `rows` made by `fill(shape, dtype)`, or `None` unless all row shapes are known and all inputs numeric."""
    batch: dict[str, Array] = {}
    for spec in inputs:
        shape = spec.batch_shape(rows)
        if not spec.is_numeric or shape is None:
            return None
        batch[spec.name] = fill(shape, spec.dtype)
    return batch or None


def trial(backend: Backend, rows: int, inputs: Sequence[TensorSpec] = ()) -> TrialRun | None:
    """Run the model on zeros, or on ones if the model fails on zeros: indices may count from one.

    Args:
        backend: the model.
        rows: rows of the batch.
        inputs: inputs with certain shapes. Default: those of the model.

    Returns:
        The batch with the outputs, or `None` where no shape is sure to be valid.

    Raises:
        MadeUpRunFailed: the model fails on both.
    """
    failures: list[Exception] = []
    for fill in (np.zeros, np.ones):
        batch = filled(inputs or backend.inputs, rows, fill)
        if batch is None:
            return None
        try:
            return TrialRun(batch, backend.run(batch))
        except Exception as error:  # a model may raise anything
            failures.append(error)
    reason = " ".join(str(failures[0]).split())
    zeros = "zeros" if all(spec.batch_axis is None for spec in backend.inputs) else f"a batch of {rows} rows of zeros"
    is_certain = all(
        spec.is_numeric and np.dtype(spec.dtype).kind == "f" and None not in (spec.row_shape or ())
        for spec in backend.inputs
    )
    raise MadeUpRunFailed(f"the model fails on {zeros}: {reason}", is_certain=is_certain) from failures[0]
