"""First runs of a model, before any request."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cluster_serving.node.models.base import Array, Backend, ModelError, TensorSpec

_WARM_UP_S = 1.0


class TrialRun(NamedTuple):
    """Batch of inputs, and the outputs that the model returned."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


def warm_up(backend: Backend, batch: int) -> int:
    """Run the model on zeros, so that no request meets a first run.

    The batch sizes are 1, 2, 4, ... `batch`, and then the sizes between until a second is over. A model with a free dimension
    besides the batch, or with text as input, is left cold, because no shape is sure to be valid.

    Returns:
        Bytes of the outputs of one row. 0: the model was left cold.

    Raises:
        ModelError: the model cannot run.
    """
    row_bytes = 0
    fixed = fixed_batch(backend)
    first = {fixed} if fixed else {batch, *(1 << power for power in range(batch.bit_length()))}
    for size in sorted(first):
        if (tried := trial(backend, size)) is not None:
            row_bytes = sum(array.nbytes for array in tried.outputs.values()) // size
    until_s = time.monotonic() + _WARM_UP_S
    for size in range(1, 1 if fixed else batch):
        if size not in first and time.monotonic() < until_s:
            trial(backend, size)
    return row_bytes


def fixed_batch(backend: Backend) -> int | None:
    """Return the fixed batch size of the model, or `None` for a free batch size.

    Raises:
        ModelError: the inputs are made for different batch sizes.
    """
    fixed = {spec.batch: spec.name for spec in backend.inputs if spec.batch}
    if len(fixed) > 1:
        made = " and ".join(f"{name!r} for batches of {size}" for size, name in sorted(fixed.items()))
        raise ModelError(
            f"the inputs are made for different batch sizes, {made}: export the model with one, or a free one."
        )
    return next(iter(fixed), None)


def filled(
    inputs: Sequence[TensorSpec], rows: int, fill: Callable[[tuple[int, ...], str], Array]
) -> dict[str, Array] | None:
    """Return a batch of `rows` made by `fill(shape, dtype)`, or `None` unless all row shapes are known and all inputs numeric."""
    batch: dict[str, Array] = {}
    for spec in inputs:
        shape = spec.row_shape
        if spec.is_text or shape is None or None in shape:
            return None
        batch[spec.name] = fill((rows, *(dim for dim in shape if dim is not None)), spec.dtype)
    return batch or None


def trial(backend: Backend, rows: int) -> TrialRun | None:
    """Run the model on zeros, or on ones if the model fails on zeros: indices may count from one.

    Returns:
        The batch with the outputs, or `None` where no shape is sure to be valid.

    Raises:
        ModelError: the model cannot run.
    """
    failures: list[Exception] = []
    for fill in (np.zeros, np.ones):
        inputs = filled(backend.inputs, rows, fill)
        if inputs is None:
            return None
        try:
            return TrialRun(inputs, backend.run(inputs))
        except Exception as error:  # a model may raise anything
            failures.append(error)
    reason = " ".join(str(failures[0]).split())
    raise ModelError(f"the model fails on a batch of {rows} rows of zeros: {reason}") from failures[0]
