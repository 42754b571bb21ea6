"""Inputs for the records of a run: made up from the model's input specifications, or read from a file."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.engines.calibration import BROKEN_FILE
from cluster_serving.node.models.base import Array, TensorSpec
from cluster_serving.node.worker.poison import as_batch, row_keys

Sample = Mapping[str, Array]
"""Value of a record for each input of the model: a row without a batch dimension, or a part of a call."""

_SIZES = (8, 16, 32, 64, 224)  # for a free dimension. At least one size works for most models.
_HIGHEST = (2, 10, 100)  # exclusive bounds for whole numbers, which may be indices
_WORDS = ["river", "stone", "cloud", "amber", "table", "seven", "light", "garden", "paper", "wind"]


def made_up(inputs: Sequence[TensorSpec], rng: np.random.Generator, count: int) -> list[Sample]:
    """Make up different samples: `count`, or fewer when the inputs allow fewer.

    More than `count` samples are made when the model may not run all: it may need different numbers, or different sizes of a free
    dimension.

    Raises:
        Fault: the model does not describe its inputs.
    """
    if not inputs or any(spec.shape is None for spec in inputs):
        raise Fault("the model does not tell what it takes: name an .npz file with inputs for it with --samples")
    sure = all(
        not spec.is_text and np.dtype(spec.dtype).kind == "f" and None not in (spec.row_shape or ()) for spec in inputs
    )
    count = count if sure else count * len(_SIZES)
    samples: list[Sample] = []
    seen: set[bytes] = set()
    for attempt in range(4 * count):
        size, highest = _SIZES[attempt % len(_SIZES)], _HIGHEST[attempt % len(_HIGHEST)]
        sample = {spec.name: _value(spec, rng, size, highest) for spec in inputs}
        (known,) = row_keys(as_batch(sample, inputs), inputs)
        if known not in seen:
            seen.add(known)
            samples.append(sample)
        if len(samples) == count:
            break
    return samples


def _value(spec: TensorSpec, rng: np.random.Generator, size: int, highest: int) -> Array:
    shape = tuple(size if dim is None else dim for dim in spec.row_shape or ())
    if spec.is_text:
        words = [" ".join(rng.choice(_WORDS, 5)) for _ in range(int(np.prod(shape, dtype=np.int64)))]
        return np.array(words, dtype=object).reshape(shape)
    dtype = np.dtype(spec.dtype)
    if dtype.kind == "f":
        return rng.random(shape, np.float32).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    return rng.integers(0, highest, shape).astype(dtype)


def read(path: Path, inputs: Sequence[TensorSpec], count: int) -> list[Sample]:
    """Read at most `count` samples from an .npz file: an array for each input, records first. Texts are arrays of `str`.

    A part of a call that lacks the first dimension of its input gets it.

    Raises:
        Fault: the file is no .npz file of arrays, or the arrays have different numbers of records.
    """
    try:
        with np.load(path, allow_pickle=False) as found:
            columns = {str(name): np.asarray(found[name]) for name in found.files}
    except BROKEN_FILE as error:
        raise Fault(f"{path} is no .npz file of arrays: {error}") from error
    sizes = {name: len(column) if column.ndim else 0 for name, column in columns.items()}
    if len(set(sizes.values())) != 1 or not all(sizes.values()):
        named = ", ".join(f"{name} {size}" for name, size in sizes.items()) or "there is none"
        raise Fault(f"{path}: all arrays must have the same number of records, at least one ({named})")
    texts = {name: column.astype(object) if column.dtype.kind == "U" else column for name, column in columns.items()}
    for spec in inputs:
        column = texts.get(spec.name)
        if column is not None and spec.batch_axis is None and spec.shape is not None and column.ndim == len(spec.shape):
            texts[spec.name] = column[:, np.newaxis]
    return [{name: column[at] for name, column in texts.items()} for at in range(min(count, *sizes.values()))]
