"""The first runs of a model, before any request meets it."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cluster_serving.node.models.base import Array, Backend, ModelError, TensorSpec

_WARM_UP_S = 1.0


class TrialRun(NamedTuple):
    """A batch, and what a model has made of it."""

    inputs: dict[str, Array]
    outputs: dict[str, Array]


def warm_up(backend: Backend, batch: int) -> None:
    """Run the model on zeros, so that no request meets a first run.

    At the batch sizes 1, 2, 4, ... `batch`, then, for as long as a second lasts, at those between. A model with a free dimension
    besides the batch, or with text for input, is left cold: no shape is sure to be valid.

    Raises:
        ModelError: the model cannot run.
    """
    fixed = fixed_batch(backend)
    first = {fixed} if fixed else {batch, *(1 << power for power in range(batch.bit_length()))}
    for size in sorted(first):
        trial(backend, size)
    until_s = time.monotonic() + _WARM_UP_S
    for size in range(1, 1 if fixed else batch):
        if size not in first and time.monotonic() < until_s:
            trial(backend, size)


def fixed_batch(backend: Backend) -> int | None:
    """The one batch size that the model takes, or None.

    Raises:
        ModelError: its inputs are made for different ones.
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
    """A batch of `rows` made by `fill(shape, dtype)`; `None` unless all row shapes are known, and of numbers."""
    batch: dict[str, Array] = {}
    for spec in inputs:
        shape = spec.row_shape
        if spec.is_text or shape is None or None in shape:
            return None
        batch[spec.name] = fill((rows, *(dim for dim in shape if dim is not None)), spec.dtype)
    return batch or None


def trial(backend: Backend, rows: int) -> TrialRun | None:
    """Run the model on zeros, or on ones if it fails on those: indices may count from one.

    Returns:
        The batch with the outputs; `None` where no shape is sure to be valid.

    Raises:
        ModelError: the model cannot run.
    """
    failures: list[Exception] = []
    for fill in (np.zeros, np.ones):
        inputs = filled(backend.inputs, rows, fill)
        if inputs is None:
            return None
        try:
            return TrialRun(inputs, backend.run(copied(inputs)))
        except Exception as error:  # a model may raise anything
            failures.append(error)
    reason = " ".join(str(failures[0]).split())
    raise ModelError(f"the model fails on a batch of {rows} rows of zeros: {reason}") from failures[0]


def copied(batch: dict[str, Array]) -> dict[str, Array]:
    """The same batch in memory of its own: a backend may work in that of its inputs, and give it out again."""
    return {name: array.copy() for name, array in batch.items()}
