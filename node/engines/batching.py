"""Batching of a model: records are rows that share a batch, or each record is a call by itself.

rows    inputs have a batch dimension. Inputs without one are shared: only records with equal values share a batch.
none    a record is a call: tensors go in as they came, and outputs come back as the model gave them.
auto    rows if every input and output has a batch dimension, or every output and the inputs for which the configuration says where
        it is. Otherwise none.

A model of rows whose records are declared to be `batches` (`inputAlreadyBatched`) keeps its batch axes, although each record is a
call: such a call may have any number of rows, and a record may also be a row, which is then a call by itself.

`declare` decides about the inputs, from their specs. `settle` decides about the outputs, by a run if one can be made up. Both
write the batch axes into the specs of the backend (`TensorSpec.batch_axis`), and all else follows from there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace

from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.engines.warm_up import MadeUpRunFailed, fixed_batch, trial
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec

log = structlog.get_logger(__name__)

_ROWS = (2, 3)  # two sizes show which dimension of an output is the batch


class Batching(msgspec.Struct, frozen=True):
    """Batching of a model, and the reason where it was chosen.

    `proof`: result of rows run alone and together. None: not known yet. `one_by_one`: records are rows, and each row is run by
    itself.
    """

    mode: Literal["rows", "none"]
    why: str = ""
    proof: Proof | None = None
    one_by_one: bool = False

    def described(self) -> str:
        """Return the batching for people, such as `none: row 2 differs by 0.9` or `rows (checked: largest difference 2e-07)`."""
        if self.proof is not None:
            return f"none: {self.proof.fault}" if self.one_by_one else f"rows ({self.proof.described()})"
        return f"{self.mode}: {self.why}" if self.why else self.mode

    def proven(self, proof: Proof, wanted: str) -> "Batching":
        """Return the batching after a proof. `wanted`: the setting, in which `rows` keeps a batch in spite of a fault."""
        return replace(self, proof=proof, one_by_one=bool(proof.fault) and wanted != "rows")


def declare(backend: Backend, options: LoadOptions) -> Batching:
    """Decide about the inputs of a backend that was just loaded.

    Raises:
        ModelError: the configuration wants rows, and the inputs are made for different numbers of rows.
    """
    inputs = [
        replace(spec, batch_axis=None) if spec.shape == () or spec.batch == 0 else spec for spec in backend.inputs
    ]
    stated = {spec.name: spec for spec in options.stated_outputs if spec.dtype}
    backend.outputs = tuple(
        replace(spec, shape=told.shape, batch_axis=told.batch_axis) if (told := stated.get(spec.name)) else spec
        for spec in backend.outputs
    )
    batched = [spec for spec in inputs if spec.batch_axis is not None]
    if any(spec.batch is None for spec in batched):  # a number in front is then no batch size
        unclear = [spec for spec in batched if spec.batch is not None and None in (spec.shape or ())]
        if unclear and options.batching == "rows":
            raise ModelError(_unclear("input", replace(unclear[0], batch_axis=None), "modelInputs"))
        inputs = [spec if spec.batch is None else replace(spec, batch_axis=None) for spec in inputs]
    sizes = {spec.batch: spec.name for spec in inputs if spec.batch}
    has_rows = (
        bool(inputs)
        and len(sizes) <= 1
        and all(spec.shape is not None and spec.batch_axis is not None for spec in inputs)
    )
    if options.batching == "batches" and has_rows:
        backend.inputs = tuple(inputs)
        backend.outputs = tuple(replace(spec, batch_axis=spec.batch_axis or 0) for spec in backend.outputs)
        return Batching("none")
    if options.batching in ("batches", "none"):
        return _none(backend, "")
    if len(sizes) > 1:
        made = " and ".join(f"{name!r} for batches of {size}" for size, name in sorted(sizes.items()))
        why = f"the inputs are made for different batch sizes, {made}"
        if options.batching == "rows":
            raise ModelError(f"{why}: export the model with one, or a free one, or set batching: none.")
        return _none(backend, why)
    backend.inputs = tuple(inputs)
    lacking = [spec.name for spec in inputs if spec.batch_axis is None]
    if len(lacking) == len(inputs) > 0:
        return _none(backend, "no input has a batch dimension")
    if lacking and options.batching == "auto" and not options.names_batch_axis:
        return _none(backend, f"input {lacking[0]!r} has no batch dimension")
    if unstated := [spec.name for spec in inputs if spec.row_shape is None]:
        log.warning(
            "a tensor with a batch dimension is taken for one row: state the shapes in modelInputs", inputs=unstated
        )
    return Batching("rows")


def settle(backend: Backend, batching: Batching, options: LoadOptions) -> Batching:
    """Decide about the outputs of a backend with declared inputs, and write the final batch axes into its specs.

    Raises:
        ModelError: the configuration wants rows, and an output does not tell where they stand.
    """
    if batching.mode == "none":
        return batching
    may_change = options.batching == "auto"
    fixed = fixed_batch(backend)
    try:
        tried = trial(backend, fixed or _ROWS[0])
    except MadeUpRunFailed as error:
        # A model that hardly runs at all is reported by the warm-up.
        if may_change and not options.names_batch_axis and not error.is_certain:
            return _none(backend, f"it does not run on {fixed or _ROWS[0]} rows of zeros or ones")
        tried = None
    if tried is None:
        stated = {spec.name for spec in options.stated_outputs if spec.dtype}
        for spec in backend.outputs:
            if _may_have_rows(spec, fixed):
                continue
            unclear = spec.batch_axis is None and spec.name not in stated and None in (spec.shape or (None,))
            if may_change:
                hint = ": say where it is in modelOutputs" if unclear and options.names_batch_axis else ""
                return _none(backend, f"output {spec.name!r} has no batch dimension{hint}")
            if unclear:
                raise ModelError(_unclear("output", spec, "modelOutputs"))
        backend.outputs = tuple(
            spec if _may_have_rows(spec, fixed) else replace(spec, batch_axis=None) for spec in backend.outputs
        )
        return batching
    rows = fixed or _ROWS[0]
    specs = {spec.name: spec for spec in backend.outputs}
    axes = {name: _axis_of_run(specs.get(name), array, rows, fixed) for name, array in tried.outputs.items()}
    unsure = {name: axis for name, axis in axes.items() if axis is None or tried.outputs[name].shape.count(rows) > 1}
    if unsure and not fixed:
        axes |= _axes_by_growth(backend, tried.outputs, unsure)
    lacking = [name for name, axis in axes.items() if axis is None]
    if lacking and may_change:
        shape = list(tried.outputs[lacking[0]].shape)
        return _none(backend, f"output {lacking[0]!r} has shape {shape} for a batch of {rows} rows")
    if lacking:
        log.warning("every record of a batch gets the same of outputs without a batch dimension", outputs=lacking)
    settled: list[TensorSpec] = []
    for spec in backend.outputs:
        axis, dims = axes.get(spec.name, 0), spec.shape
        if dims and axis and not fixed and dims[axis] == rows:  # a backend took the rows of the run for a fixed size
            dims = (*tried.outputs[spec.name].shape[:axis], None, *dims[axis + 1 :])
        settled.append(replace(spec, shape=dims, batch_axis=axis))
    backend.outputs = tuple(settled)
    return batching


def _none(backend: Backend, why: str) -> Batching:
    backend.inputs, backend.outputs = _without_axis(backend.inputs), _without_axis(backend.outputs)
    return Batching("none", why)


def _without_axis(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    return tuple(replace(spec, batch_axis=None) for spec in specs)


def _may_have_rows(spec: TensorSpec, fixed: int | None) -> bool:
    """Return whether an output can have a row for each row of the inputs."""
    return spec.shape != () and spec.batch_axis is not None and spec.batch in (None, fixed)


def _unclear(kind: str, spec: TensorSpec, key: str) -> str:
    shape = "[2,N,128]" if spec.shape is None else spec.kind.partition(" ")[2].replace("?", "N", 1)
    return (
        f"{kind} {spec.describe()} does not tell where its rows stand: say it in {key}, as in {spec.name} {spec.dtype} {shape}, "
        "or set batching: none."
    )


def _axis_of_run(spec: TensorSpec | None, array: Array, rows: int, fixed: int | None) -> int | None:
    """Return the declared batch axis of an output if the output of a run has the rows there, and not as a fixed size."""
    axis = 0 if spec is None else spec.batch_axis
    if spec is not None and spec.batch not in (None, fixed):
        return None
    return axis if axis is not None and array.shape[axis : axis + 1] == (rows,) else None


def _axes_by_growth(
    backend: Backend, outputs: Mapping[str, Array], axes: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Return the dimension of each output that has the size of the batch for batches of two sizes, or `None`.

    An axis of `axes` that grows with the batch is kept. Of other outputs, only one dimension may grow.
    """
    few, more = _ROWS
    try:
        again = trial(backend, more)
    except ModelError:
        again = None
    if again is None:
        return {}
    found: dict[str, int | None] = {}
    for name, axis in axes.items():
        before, after = outputs[name].shape, again.outputs[name].shape
        grown = [at for at, dims in enumerate(zip(before, after, strict=False)) if dims == (few, more)]
        same = len(before) == len(after) and len(grown) == sum(a != b for a, b in zip(before, after, strict=False)) == 1
        found[name] = axis if axis in grown else grown[0] if same else None
    return found


def rows_first(backend: Backend) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """Return a function that runs the model on a batch whose arrays have all rows in front, and returns such arrays.

    An input without a batch dimension is given as many times as there are rows, and used once. An output without one is
    returned for every row.
    """
    axes = {spec.name: spec.batch_axis for spec in backend.inputs}
    moved = {spec.name: spec.batch_axis for spec in backend.outputs if spec.batch_axis != 0}
    if not moved and set(axes.values()) <= {0}:
        return backend.run

    def run(batch: dict[str, Array]) -> dict[str, Array]:
        rows = len(next(iter(batch.values())))
        inputs: dict[str, Array] = {}
        for name, array in batch.items():
            axis = axes.get(name, 0)
            inputs[name] = array[0, ...] if axis is None else np.ascontiguousarray(np.moveaxis(array, 0, axis))
        outputs = backend.run(inputs)
        for name, axis in moved.items():
            array = outputs[name]
            if axis is None:
                outputs[name] = np.broadcast_to(array, (rows, *array.shape))
            elif array.ndim > axis:
                outputs[name] = np.moveaxis(array, axis, 0)
        return outputs

    return run


def with_rows_first(batch: Mapping[str, Array], specs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return the arrays of a batch with the rows of each in front, as views. An input without rows is repeated for every row."""
    axes = {spec.name: spec.batch_axis for spec in specs}
    batched = {
        name: np.moveaxis(array, axis, 0) for name, array in batch.items() if (axis := axes.get(name, 0)) is not None
    }
    rows = max(map(len, batched.values()))
    return {
        name: batched[name] if name in batched else np.broadcast_to(array, (rows, *array.shape))
        for name, array in batch.items()
    }


def sized(run: Callable[[dict[str, Array]], dict[str, Array]], size: int | None) -> Callable[..., dict[str, Array]]:
    """Return a function that runs a model on `rows` rows, padded to `size` rows, and returns the outputs of the rows.

    Args:
        run: runs the model on arrays with the rows in front.
        size: rows that the model takes at once. None: any number.
    """

    def run_rows(inputs: dict[str, Array], rows: int) -> dict[str, Array]:
        expected = size or rows
        if rows < expected:
            padded: dict[str, Array] = {}
            for name, array in inputs.items():
                fill = "" if array.dtype == object else 0
                padded[name] = np.full((expected, *array.shape[1:]), fill, array.dtype)
                padded[name][: len(array)] = array
            inputs = padded
        outputs = run(inputs)
        for name, array in outputs.items():
            if array.ndim == 0 or array.shape[0] != expected:
                raise ModelError(
                    f"output {name!r} has shape {list(array.shape)} for a batch of {expected} rows; if the model does not "
                    "work row by row, set batching: none"
                )
        return {name: array[:rows] for name, array in outputs.items()} if rows < expected else outputs

    return run_rows
