"""Batches for the trial runs of a model: random numbers, or the user's own data.

calibrationData: samples.npz     an array for each input, by the input's name, with the rows along the batch dimension
calibrationData: samples.npy     an array for a model with a single input
calibrationData: photos/         images (JPEG, PNG, ...), decoded like the images of records

Without a batch dimension, the arrays are one call. Labels for `accuracyMetric` are an array `labels` in the .npz, or a file
`labels.npy` among the images, in the order of their names.
"""

import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import matches
from cluster_serving.node.engines.warm_up import filled
from cluster_serving.node.models.base import Array, ModelError, TensorSpec, open_inputs
from cluster_serving.node.models.calibration_data import IMAGES, LABELS, image_files
from cluster_serving.node.processing.options import ImageOptions

MOST_BYTES = 1 << 30
"""Bytes of the records that INT8 is calibrated and judged by, at most."""
BROKEN_FILE = (
    *(OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile, zlib.error),
    RuntimeError,  # encrypted, or compressed in a way that zipfile does not know
    *(MemoryError, SyntaxError, tokenize.TokenError),  # of a damaged header of an array
)
"""Errors of numpy and zipfile for a broken file of arrays."""
_KEY = "calibrationData"


def random_batch(inputs: Sequence[TensorSpec], rows: int) -> dict[str, Array] | None:
    """Return a batch of random floats from 0 to 1 and random whole numbers 0 or 1, the same batch every time.

    The result is `None` unless the shapes of all inputs are known and all inputs are numeric.
    """
    generator = np.random.default_rng(0)

    def fill(shape: tuple[int, ...], dtype: str) -> Array:
        if np.dtype(dtype).kind == "f":
            return generator.random(shape).astype(dtype)
        return generator.integers(0, 2, shape).astype(dtype)

    return filled(inputs, rows, fill)


def different_rows(inputs: Sequence[TensorSpec], rows: int) -> Iterator[dict[str, Array]]:
    """Yield made-up arrays with up to `rows` rows in front, no two rows alike, first for most models, then for models of indices.

    The rows differ in their level and in their spread too, because long rows of the same noise look alike to most models. All rows
    have the same value of an input without a batch dimension. Nothing is yielded unless the shapes of all inputs are known and all
    inputs are numeric.
    """
    generator = np.random.default_rng(0)
    levels, spreads = np.resize([0, 0.5, 0, 0.75], rows), np.resize([1, 0.5, 0.25, 0.25], rows)

    def fill(spec: TensorSpec, shape: Sequence[int], has_pixels: bool, lowest: int | None) -> Array:
        noise, dtype = generator.random((rows, *shape), np.float32), np.dtype(spec.dtype)
        level, spread = (each.reshape(rows, *[1] * len(shape)).astype(np.float32) for each in (levels, spreads))
        if dtype.kind == "f" and lowest is None:
            return (level + spread * noise).astype(dtype)
        if dtype == np.uint8 and has_pixels:
            return (255 * (level + spread * noise)).astype(dtype)
        return ((noise < level + spread / 2) + (lowest or 0)).astype(dtype)

    shapes = {spec.name: spec.batch_shape(1) for spec in inputs}
    if not shapes or None in shapes.values() or not all(spec.is_numeric for spec in inputs):
        return
    for has_pixels, lowest in ((True, None), (False, None), (False, 1)):
        made: dict[str, Array] = {}
        for spec in inputs:
            if spec.batch_axis is None:
                shared = fill(spec, shapes[spec.name] or (), has_pixels, lowest)
                made[spec.name] = np.broadcast_to(shared[:1], shared.shape)
            else:
                made[spec.name] = fill(spec, [dim or 0 for dim in spec.row_shape or ()], has_pixels, lowest)
        contents = [b"".join(array[row].tobytes() for array in made.values()) for row in range(rows)]
        kept = sorted({content: row for row, content in enumerate(contents)}.values())
        if len(kept) > 1:
            yield {name: array[kept] for name, array in made.items()}


def samples(
    path: Path, inputs: Sequence[TensorSpec], images: ImageOptions, rows: int, most_bytes: int = MOST_BYTES
) -> dict[str, Array]:
    """Return the first rows of the user's own data, or a call, by the names of the inputs.

    Args:
        path: value of `calibrationData`.
        inputs: inputs of the model. An empty sequence stands for any number of tensors.
        images: options for decoding images into rows.
        rows: largest number of rows. The result has at least one row.
        most_bytes: largest number of bytes of these rows.

    Raises:
        ModelError: the data cannot be read, or do not fit the model. The message begins with the key and the path.
    """
    try:
        if path.is_dir():
            return _from_images(path, inputs, images, rows, most_bytes)
        return _fitted(_from_file(path, inputs), inputs, rows, most_bytes)
    except (CodecError, *BROKEN_FILE) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(f"{_KEY} {path}: {reason}") from error


def labels_of(path: Path, inputs: Sequence[TensorSpec], rows: int) -> Array | None:
    """Return the labels of the first rows of the user's own data, or `None` for data without labels.

    Raises:
        ModelError: the labels cannot be read, or are fewer than the rows.
    """
    try:
        found: Array | None = None
        if path.is_dir():
            file = path / f"{LABELS}.npy"
            found = np.load(file, allow_pickle=False) if file.exists() else None
        elif path.suffix == ".npz" and LABELS not in {spec.name for spec in inputs}:
            with np.load(path, allow_pickle=False) as arrays:
                found = arrays[LABELS] if LABELS in arrays.files else None
        if found is not None and (not found.ndim or len(found) < rows):
            raise ValueError(f"{LABELS} has shape {[*found.shape]}, and there are {rows} records")
    except BROKEN_FILE as error:
        raise ModelError(f"{_KEY} {path}: {error}") from error
    return None if found is None else found[:rows]


def _from_file(path: Path, inputs: Sequence[TensorSpec]) -> Mapping[str, Array]:
    path.stat()  # the readers below would report a missing file as a broken file
    if path.suffix == ".npz":
        if not zipfile.is_zipfile(path):
            raise ValueError("not an .npz file, or a truncated .npz file")
        with np.load(path, allow_pickle=False) as arrays:
            is_input = LABELS in {spec.name for spec in inputs}
            return {name: arrays[name] for name in arrays.files if name != LABELS or is_input}
    if path.suffix == ".npy":
        if len(inputs) > 1:
            raise ValueError(f"one array, and the model takes {_taken(inputs)}: save them with numpy.savez, by name")
        (spec,) = inputs or open_inputs(1)
        return {spec.name: np.lib.format.open_memmap(path, mode="r")}
    raise ValueError("neither an .npz or .npy file nor a folder of images")


def _fitted(arrays: Mapping[str, Array], inputs: Sequence[TensorSpec], rows: int, most_bytes: int) -> dict[str, Array]:
    inputs = inputs or open_inputs(len(arrays))
    if set(arrays) != {spec.name for spec in inputs}:
        raise ValueError(f"arrays for {', '.join(arrays) or 'nothing'}, and the model takes {_taken(inputs)}")
    rows_of = {spec.name: count for spec in inputs if (count := spec.rows_of(arrays[spec.name])) is not None}
    if len(set(rows_of.values())) > 1 or not all(rows_of.values()):
        told = ", ".join(f"{name!r} {count}" for name, count in rows_of.items())
        raise ValueError(f"each input must have the same number of rows, and one at least: {told}")
    row_bytes = sum(_row_bytes(arrays[spec.name], spec) for spec in inputs if spec.name in rows_of)
    rows = min(rows, max(1, most_bytes // max(1, row_bytes)))
    fitted: dict[str, Array] = {}
    for spec in inputs:
        array = spec.take(arrays[spec.name], slice(rows))
        is_text = array.dtype.kind == "U"
        if is_text != spec.is_text or not _fits(array, spec):
            raise ValueError(
                f"{spec.name!r} is {array.dtype} {list(array.shape)}, and the model takes {spec.describe()}"
            )
        fitted[spec.name] = array.astype(object) if is_text else np.asarray(spec.converted(array), order="C")
    return fitted


def _row_bytes(array: Array, spec: TensorSpec) -> int:
    """Return the bytes of a row in the dtype of the input. The shape of the input may be free."""
    itemsize = np.dtype(spec.dtype).itemsize if spec.is_numeric else array.itemsize
    return array.size // (spec.rows_of(array) or 1) * itemsize


def _fits(array: Array, spec: TensorSpec) -> bool:
    if spec.shape is None:
        return True
    axis = spec.batch_axis
    shape = [None if at == axis else dim for at, dim in enumerate(spec.shape)]
    return matches(array.shape, tuple(shape))


def _from_images(
    folder: Path, inputs: Sequence[TensorSpec], images: ImageOptions, rows: int, most_bytes: int
) -> dict[str, Array]:
    if len(inputs) > 1:
        raise ValueError(f"images for one input, and the model takes {_taken(inputs)}: give an .npz file")
    files = image_files(folder)
    if not files:
        raise ValueError(f"no images in it ({', '.join(sorted(IMAGES))})")
    # Imported here, because OpenCV takes 40 MB that a worker for tensors does not need.
    from cluster_serving.node.processing.image import ImageFit

    (spec,) = inputs or open_inputs(1)
    fit = ImageFit(spec, images)
    found: list[Array] = []
    for file in files[:rows]:
        try:
            found.append(fit(file.read_bytes()))
        except ValueError as error:
            raise ValueError(f"{file.name}: {error}") from error
        if found[-1].shape != found[0].shape:
            raise ValueError(f"{file.name} has another size than {files[0].name}: set imageResize")
        if (len(found) + 1) * found[0].nbytes > most_bytes:
            break
    return {spec.name: np.stack(found)}


def _taken(inputs: Sequence[TensorSpec]) -> str:
    return ", ".join(spec.describe() for spec in inputs)
