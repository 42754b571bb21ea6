"""Padding: rows of different length share a batch, padded to the longest row.

    rows [5], [7], [6]  ──►  batch [3,7] with fills, lengths 5 7 6  ──►  outputs [3,7,8]  ──►  [5,8], [7,8], [6,8]

The rows of a slot run in groups of similar length, so that at most a quarter of a batch is padding. The lengths travel beside the
arrays of a batch, as an array of their own (`LENGTHS`), so that rows are taken and left out together with their lengths.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import structlog
from msgspec.structs import replace

from cluster_serving.client.errors import CodecError
from cluster_serving.node.engines.warm_up import MadeUpRunFailed, fixed_batch, trial
from cluster_serving.node.models.base import Array, Backend, ModelError, TensorSpec

log = structlog.get_logger(__name__)

LENGTHS = ""
"""Name of the lengths among the inputs of a batch. No input of a model has an empty name."""

_MOST_PADDING = 0.25  # share of a batch
_TRIED = (5, 7)  # two lengths show which dimensions of an output carry the length


class Padding:
    """Padding of the rows of one model.

    Args:
        backend: the model, with settled batch axes.
        fills: fill value of each padded input.

    Attributes:
        cut: axes of a row that carry the length, for each output with such axes.

    Raises:
        ModelError: an input cannot be padded, or an output cannot be cut back.
    """

    def __init__(self, backend: Backend, fills: Mapping[str, float]) -> None:
        specs = {spec.name: spec for spec in backend.inputs}
        self._fills: dict[str, Array] = {}
        self._axes: dict[str, int] = {}
        for name, fill in fills.items():
            if (spec := specs.get(name)) is None:
                takes = ", ".join(each.describe() for each in backend.inputs) or "any inputs"
                raise ModelError(f"padding names {name!r}, and the model takes {takes}: name inputs of the model.")
            free = [at for at, dim in enumerate(spec.row_shape or ()) if dim is None]
            if len(free) != 1 or spec.batch_axis is None or not spec.is_numeric:
                raise ModelError(
                    f"padding is for inputs of numbers with one free dimension beside the batch, and {spec.describe()} is none: "
                    "take it out of padding, or say its shape in modelInputs, as in ids int64 [N,?]."
                )
            try:
                self._fills[name] = spec.converted(np.asarray(fill))
            except CodecError as error:
                raise ModelError(f"padding of {name!r}: {error}") from error
            self._axes[name] = free[0]
        self._places = [(at, self._axes[spec.name]) for at, spec in enumerate(backend.inputs) if spec.name in fills]
        self._names = [spec.name for spec in backend.inputs]
        self.cut = _carriers(backend, self._axes)

    def key(self, arrays: Sequence[Array]) -> tuple[object, ...]:
        """Return a key that is equal for rows that may be stacked. Padded inputs of one length leave the length open.

        Args:
            arrays: one row of each input, in the model's order.
        """
        shapes: list[tuple[int | None, ...]] = [array.shape for array in arrays]
        if len({arrays[at].shape[axis] for at, axis in self._places}) == 1:
            for at, axis in self._places:
                shapes[at] = _with_length(shapes[at], axis, None)
        return tuple(shapes)

    def batches(self, rows: Sequence[Sequence[Array]]) -> Iterator[tuple[list[int], dict[str, Array]]]:
        """Yield batches of rows of one key: the places of the rows, and their arrays, padded to the longest row, rows in front.

        Args:
            rows: arrays of each row, in the model's order.
        """
        place, axis = self._places[0]
        lengths = np.array([row[place].shape[axis] for row in rows])
        for group in groups(lengths.tolist()):
            yield group, self._stacked([rows[at] for at in group], lengths[group])

    def _stacked(self, rows: Sequence[Sequence[Array]], lengths: Array) -> dict[str, Array]:
        batch: dict[str, Array] = {}
        longest, is_padded = int(lengths.max()), lengths.min() < lengths.max()
        for name, column in zip(self._names, zip(*rows, strict=True), strict=True):
            if not is_padded or name not in self._axes:
                batch[name] = np.stack(column)
                continue
            shape = [len(rows), *column[0].shape]
            shape[1 + self._axes[name]] = longest
            batch[name] = np.full(shape, self._fills[name])
            for row, array in zip(batch[name], column, strict=True):
                row[tuple(map(slice, array.shape))] = array
        return {**batch, LENGTHS: lengths} if is_padded else batch

    def around(self, run: Callable[[dict[str, Array]], dict[str, Array]]) -> Callable[..., dict[str, Array]]:
        """Return a function that runs a model on a padded batch, without padding that no row needs.

        The outputs are as wide as the inputs, and zero beyond the length of each row, whatever rows are beside.

        Args:
            run: runs the model on arrays with the rows in front.
        """

        def run_padded(batch: dict[str, Array]) -> dict[str, Array]:
            if LENGTHS not in batch:
                return run(batch)
            lengths = batch[LENGTHS]
            longest = int(lengths.max())
            inputs = {name: array for name, array in batch.items() if name != LENGTHS}
            width = longest
            for name, axis in self._axes.items():
                width = inputs[name].shape[1 + axis]
                inputs[name] = np.ascontiguousarray(inputs[name][_first(1 + axis, longest)])
            outputs = run(inputs)
            for name, axes in self.cut.items():
                shape = list(outputs[name].shape)
                for axis in axes:
                    shape[1 + axis] = width
                wide = np.zeros(shape, outputs[name].dtype)
                for row, length in enumerate(lengths.tolist()):
                    at = tuple(slice(length) if axis in axes else slice(None) for axis in range(len(shape) - 1))
                    wide[row][at] = outputs[name][row][at]
                outputs[name] = wide
            return outputs

        return run_padded

    def parts(self, lengths: Array, outputs: Mapping[str, Array]) -> Iterator[tuple[list[int], dict[str, Array]]]:
        """Yield the rows of each length, as places in the batch, with their outputs, cut back to the length."""
        for length in sorted(set(lengths.tolist())):
            at = np.flatnonzero(lengths == length)
            part = {name: array[at] for name, array in outputs.items()}
            for name, axes in self.cut.items():
                for axis in axes:
                    part[name] = part[name][_first(1 + axis, length)]
            yield at.tolist(), part


def groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the places of lengths in groups of similar length. At most a quarter of a group is padding."""
    group: list[int] = []
    filled = longest = 0
    for at in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if group and filled + lengths[at] < (1 - _MOST_PADDING) * longest * (len(group) + 1):
            yield sorted(group)
            group, filled = [], 0
        if not group:
            longest = lengths[at]
        group.append(at)
        filled += lengths[at]
    yield sorted(group)


def _with_length(shape: Sequence[int | None], axis: int, length: int | None) -> tuple[int | None, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def _first(axis: int, length: int) -> tuple[slice, ...]:
    """Return the index of the first `length` places along an axis."""
    return (*[slice(None)] * axis, slice(length))


def _carriers(backend: Backend, axes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the axes of a row that carry the length, for each output with such axes, by runs of two lengths.

    Raises:
        ModelError: a dimension of an output follows the length, and is not the length itself.
    """
    shapes = [_row_shapes(backend, axes, length) for length in _TRIED]
    found: dict[str, tuple[int, ...]] = {}
    for name, few in shapes[0].items():
        more = shapes[1][name]
        dims = list(zip(few, more, strict=False))
        follows = [at for at, pair in enumerate(dims) if pair == _TRIED]
        if len(few) != len(more) or len(follows) < sum(a != b for a, b in dims):
            raise ModelError(
                f"padding cannot be cut off output {name!r}: its rows have shape {list(few)} for a length of {_TRIED[0]}, and "
                f"{list(more)} for {_TRIED[1]}. Serve the model without padding."
            )
        if follows:
            found[name] = tuple(follows)
    return found


def _row_shapes(backend: Backend, axes: Mapping[str, int], length: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of a row of each output for rows of a length.

    Where the model does not run on made-up rows, the free dimensions of its outputs are taken for the length.
    """
    inputs: list[TensorSpec] = []
    for spec in backend.inputs:
        if (axis := axes.get(spec.name)) is not None and spec.shape is not None:
            at = axis + (spec.batch_axis is not None and axis >= spec.batch_axis)
            spec = replace(spec, shape=_with_length(spec.shape, at, length))
        inputs.append(spec)
    try:
        tried = trial(backend, fixed_batch(backend) or 1, inputs)
    except MadeUpRunFailed as error:
        log.info("free dimensions of outputs are taken for the length", reason=str(error))
        tried = None
    if tried is None:
        return {
            spec.name: tuple([length if dim is None else dim for dim in spec.row_shape or ()])
            for spec in backend.outputs
        }
    batch_axes = {spec.name: spec.batch_axis for spec in backend.outputs}
    shapes: dict[str, tuple[int, ...]] = {}
    for name, array in tried.outputs.items():
        axis = batch_axes.get(name, 0)
        shapes[name] = array.shape if axis is None else (*array.shape[:axis], *array.shape[axis + 1 :])
    return shapes
