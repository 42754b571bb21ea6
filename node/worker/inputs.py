"""Decoding of the contents of a slot into the arrays that the model takes."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.wire.bytes_in_text import text_of
from cluster_serving.client.wire.nested import decode_nested
from cluster_serving.node.engines.padding import Padding
from cluster_serving.node.models.base import Array, ModelError, TensorSpec, open_inputs
from cluster_serving.node.models.secrets import Secrets
from cluster_serving.node.models.user_code import UserFault
from cluster_serving.node.processing.custom import Processing
from cluster_serving.node.processing.options import ImageOptions
from cluster_serving.node.processing.records import Preprocessor, nested_row, text_array, text_row
from cluster_serving.node.ring.input_layout import InputArea, decode_layout
from cluster_serving.node.ring.slot import Outcome, Slot, array_at, cut

if TYPE_CHECKING:
    from cluster_serving.node.worker.image_rows import ImageRows

_layout_of = lru_cache(maxsize=4096)(decode_layout)
_WHOLE = ("whole", "strings")


class ModelRun(NamedTuple):
    """Rows of a slot that go through the model together, or a single record that is a `whole` batch by itself.

    Rows of different length are padded, and `inputs` has their `LENGTHS` too.
    """

    rows: list[int]
    inputs: dict[str, Array]
    whole: bool = False

    def halves(self) -> "tuple[ModelRun, ModelRun]":
        """Return two runs with half of the rows each. The run must have more than one row."""
        middle = len(self.rows) // 2
        first = {name: array[:middle] for name, array in self.inputs.items()}
        rest = {name: array[middle:] for name, array in self.inputs.items()}
        return ModelRun(self.rows[:middle], first), ModelRun(self.rows[middle:], rest)


class SlotInputs:
    """Decodes the contents of slots for one model.

    Args:
        inputs: inputs of the model.
        images: settings for making rows of encoded images.
        secrets: secrets that open encrypted images. `None`: images are not encrypted.
        processing: user code. Its `preprocess`, if present, makes rows of undecoded records.
        calls: each record is a call of the model by itself, and no row of a batch.
        padding: padding of rows of different length. None: such rows run apart.

    Raises:
        ModelError: no image can be opened with the secrets.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        images: ImageOptions,
        secrets: Secrets | None = None,
        processing: Processing | None = None,
        *,
        calls: bool = False,
        padding: Padding | None = None,
    ) -> None:
        self._inputs = inputs
        self._calls = calls
        self._padding = padding
        self._has_rows = any(spec.batch_axis is not None for spec in inputs)
        self._shared = [at for at, spec in enumerate(inputs) if spec.batch_axis is None and not calls]
        self._images = images
        self._open: Callable[[bytes], bytes] = bytes  # images that are not encrypted stay as they are
        if secrets is not None:
            from cluster_serving.client.wire.encryption import RecordCipher

            try:
                self._open = RecordCipher(secrets.secret, secrets.salt).open
            except (ModuleNotFoundError, ValueError) as error:
                raise ModelError(f"recordEncrypted is true, but {error}.") from error
        self._preprocess = Preprocessor(processing, self._inputs, self._open) if processing else None
        self._image_rows: dict[str, ImageRows] = {}

    def decode(self, slot: Slot, rows: range, without: Collection[int] = ()) -> tuple[list[ModelRun], list[Outcome]]:
        """Return runs of rows of one group, and errors for rows with broken contents. Rows in `without` are left out."""
        layout = _layout_of(slot.signature)
        specs = self._inputs or open_inputs(len(layout.inputs))
        whole = any(place.kind in _WHOLE for place in layout.inputs) or (self._calls and not self._has_rows)
        if not layout.has_heap and not whole and not self._calls:
            inputs = {spec.name: _view(slot, place, rows) for spec, place in zip(specs, layout.inputs, strict=True)}
            if not without:
                return [ModelRun(list(rows), inputs)], []
            kept = [row for row in rows if row not in without]
            at = [row - rows.start for row in kept]
            return [ModelRun(kept, {name: array[at] for name, array in inputs.items()})] if kept else [], []
        spans = {row.place: row.spans for row in slot.table() if row.place in rows}
        groups: dict[tuple[object, ...], list[tuple[int, list[Array]]]] = defaultdict(list)
        runs: list[ModelRun] = []
        broken: list[Outcome] = []
        for row in rows:
            if row in without:
                continue
            try:
                arrays = self._row(slot, specs, layout.inputs, rows, row, spans[row])
            except Exception as error:  # every exception of a decoder is answered as a fault of the record
                kind = "" if isinstance(error, (ValueError, UserFault)) else f"{type(error).__name__}: "
                broken.append(Outcome([row], error=(ErrorCode.INVALID_INPUT, cut(f"{kind}{error}"))))
            else:
                if whole:
                    runs.append(
                        ModelRun([row], {spec.name: array for spec, array in zip(specs, arrays, strict=True)}, whole)
                    )
                else:
                    shapes = self._padding.key(arrays) if self._padding else [array.shape for array in arrays]
                    shared = [str(arrays[at].tolist()) for at in self._shared]
                    groups[row if self._calls else None, *shapes, *shared].append((row, arrays))
        for members in groups.values():
            numbers, contents = [row for row, _ in members], [arrays for _, arrays in members]
            if self._padding:
                batches = self._padding.batches(contents)
                runs += (ModelRun([numbers[at] for at in places], batch) for places, batch in batches)
                continue
            columns = list(zip(*contents, strict=True))
            named = zip(self._inputs or open_inputs(len(columns)), columns, strict=True)
            runs.append(ModelRun(numbers, {spec.name: _joined(column) for spec, column in named}))
        return runs, broken

    def _row(
        self,
        slot: Slot,
        specs: Sequence[TensorSpec],
        places: Sequence[InputArea],
        rows: range,
        row: int,
        spans: Sequence[tuple[int, int]],
    ) -> list[Array]:
        contents = (bytes(slot.inputs[start : start + length]) for start, length in spans)
        if self._preprocess and places[0].kind == "record":
            return self._preprocess(next(contents))
        arrays: list[Array] = []
        for spec, place in zip(specs, places, strict=True):
            if place.kind in ("tensor", "whole"):
                arrays.append(_view(slot, place, range(row, row + 1))[0, ...])
            elif place.kind == "padded":
                arrays.append(np.frombuffer(next(contents), place.dtype).reshape(place.row_shape))
            elif place.kind == "string":
                arrays.append(text_row(spec, msgspec.json.decode(next(contents))))
            elif place.kind == "nested":
                arrays.append(nested_row(spec, decode_nested(next(contents))))
            elif place.kind == "strings":
                arrays.append(text_array(spec, msgspec.json.decode(next(contents))))
            elif spec.takes_bytes:
                arrays.append(text_row(spec, text_of(self._open(next(contents)))))
            else:
                arrays.append(self._image(spec, next(contents), row - rows.start, len(rows)))
        return arrays

    def _image(self, spec: TensorSpec, content: bytes, place: int, most: int) -> Array:
        images = self._image_rows.get(spec.name)
        if images is None:
            # Imported with the first image, because OpenCV takes 40 MB. A worker without images does not need OpenCV.
            from cluster_serving.node.worker.image_rows import ImageRows

            images = self._image_rows[spec.name] = ImageRows(spec, self._images)
        try:
            return images.row(self._open(content), place, most)
        except ValueError as error:
            raise ValueError(f"input {spec.name!r}: {error}") from error


def _joined(rows: Sequence[Array]) -> Array:
    """Return rows as one array. Rows that are the first rows of one array, in order, are not copied."""
    whole = rows[0].base
    if isinstance(whole, np.ndarray) and whole.ndim and len(whole) >= len(rows) and whole.flags.c_contiguous:
        first_rows = [whole[place, ...] for place in range(len(rows))]
        if all(row.__array_interface__ == own.__array_interface__ for row, own in zip(rows, first_rows, strict=True)):
            return whole[: len(rows)]
    return np.stack(rows)


def _view(slot: Slot, place: InputArea, rows: range) -> Array:
    return array_at(
        slot.inputs, place.dtype, (len(rows), *place.row_shape), place.offset + rows.start * place.row_bytes
    )
