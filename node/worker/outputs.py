"""Storage of a model run's results in a slot: arrays, text, or results of a filter or of the user's `postprocess`."""

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec
import numpy as np
from msgspec.structs import replace

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.servers.process.redaction import redact
from cluster_serving.client.wire.nested import encode_nested
from cluster_serving.node.models.base import Array, ModelError, TensorSpec
from cluster_serving.node.models.user_code import UserFault
from cluster_serving.node.processing.custom import Processing
from cluster_serving.node.processing.topn import Filter, apply, apply_to_rows
from cluster_serving.node.ring.slot import Outcome, Slot, StoredOutput, array_at, cut, cut_detail
from cluster_serving.node.worker.inputs import ModelRun

_ALIGNMENT = 64
_NUMBERS = "fiub"
# finish.lua takes 8000 values at once. With more values the script would end after the acknowledgement and before the answer.
_MOST_OUTPUTS = 3500
_WIDE = ("float32", "float64")
_FILTERED = TensorSpec(keys.VALUE.decode(), "str", (None,))  # JSON, a text a record
_BEYOND_FLOAT16 = 65520  # becomes infinite
_LARGEST_ITEM = 8  # bytes: Arrow has no tensor of longer numbers

Outputs = Mapping[str, Array]
Postprocess = Callable[[dict[str, Array]], Outputs | bytes]
_encode = msgspec.msgpack.Encoder().encode


class ResultTooLargeError(Exception):
    """The results do not fit into the slot."""


class NoRoomError(ResultTooLargeError):
    """The outputs of the slot are full, perhaps only because of the outputs of neighbouring rows."""


class OutputArea:
    """Outputs of a slot, filled from front to back. Contents without room raise `NoRoomError`.

    Attributes:
        used: number of bytes in use. A lower number takes back what was put last.
        full: a row had no room beside its neighbours. The row runs after the writer has emptied the area.
    """

    def __init__(self, slot: Slot) -> None:
        self._memory = slot.outputs
        self.used = slot.output_bytes
        self.full = False

    def rows(self, row_bytes: int) -> int:
        """Return the number of rows of `row_bytes` that have room. An empty area has room for a row of any size."""
        return (len(self._memory) - self.used) // row_bytes or int(not self.used)

    def put(self, content: bytes) -> tuple[int, int]:
        """Store the content, and return its offset and length."""
        start = self._take(self.used, len(content))
        self._memory[start : self.used] = content
        return start, len(content)

    def place(self, outputs: Outputs, axes: Mapping[str, int] = MappingProxyType({})) -> list[StoredOutput]:
        """Store the outputs of one or several rows. `axes` has the batch axes that are not 0 (`StoredOutput.batch_axis`)."""
        stored: list[StoredOutput] = []
        for name, array in outputs.items():
            if array.dtype.kind not in _NUMBERS:
                nested = holds_nested(array)
                rows = array.tolist()
                spans = [self.put(encode_nested(row) if nested else json.dumps(row).encode()) for row in rows]
                dtype = "nested" if nested else "str"
                stored.append(StoredOutput(name, dtype, spans=spans, batch_axis=axes.get(name, 0)))
                continue
            dtype = array.dtype.newbyteorder("=").str
            offset = self._take(-(-self.used // _ALIGNMENT) * _ALIGNMENT, array.nbytes)
            array_at(self._memory, dtype, array.shape, offset)[...] = array
            stored.append(StoredOutput(name, dtype, array.shape[1:], offset, batch_axis=axes.get(name, 0)))
        return stored

    def _take(self, start: int, size: int) -> int:
        most = len(self._memory)
        if start + size > most:
            kind = NoRoomError if size <= most else ResultTooLargeError
            raise kind(f"the results do not fit into the {most} bytes of a slot (slotBytes in config.yaml)")
        self.used = start + size
        return start


class SlotOutputs:
    """Stores the outputs of runs.

    Args:
        keep: a filter, or `None`.
        processing: user code. Its `postprocess`, if present, makes the results.
        outputs: outputs of the model.
        in_float16: float32 and float64 are sent as float16. A filter and a `postprocess` see the model's own values.

    Attributes:
        outputs: outputs as they are sent. Empty: a `postprocess` makes them, and nobody knows before a run.

    Raises:
        ModelError: both a filter and a `postprocess` are given, or the filter takes no output of this kind.
    """

    def __init__(
        self,
        keep: Filter | None,
        processing: Processing | None,
        outputs: Sequence[TensorSpec] = (),
        *,
        in_float16: bool = False,
    ) -> None:
        self._filter = keep
        self._axes = {
            spec.name: -1 if spec.batch_axis is None else spec.batch_axis for spec in outputs if spec.batch_axis != 0
        }
        self._postprocess: Postprocess | None = None
        if processing is not None and processing.has_postprocess:
            self._postprocess = processing.postprocess
            if keep is not None:
                raise ModelError(
                    f"postProcessing is {keep.name}({keep.n}), and the class of processing has a postprocess: keep one of "
                    "them."
                )

        self._in_float16 = in_float16 and self.keeps_all
        self.outputs: tuple[TensorSpec, ...] = ()
        if keep is not None:
            for spec in outputs:
                if spec.is_text or spec.is_nested:
                    raise ModelError(
                        f"postProcessing is {keep.name}({keep.n}), which takes numbers, and output {spec.name!r} of the model "
                        f"is {spec.dtype}: set modelOutputs to outputs of numbers, or postProcessing to nothing."
                    )
            self.outputs = (_FILTERED,)
        elif self._postprocess is None:
            self.outputs = tuple(
                replace(spec, dtype="float16") if self._in_float16 and spec.dtype in _WIDE else spec for spec in outputs
            )

    @property
    def keeps_all(self) -> bool:
        """True when outputs are stored as the model returns them."""
        return self._filter is None and self._postprocess is None

    def store(self, area: OutputArea, run: ModelRun, outputs: Outputs) -> list[Outcome]:
        """Store the results of a run, and return the outcomes of its rows, except rows without room (`area.full`).

        Args:
            area: outputs of the slot.
            run: rows of the run.
            outputs: arrays of the model, rows first, or the arrays of a record that is a whole batch.

        Raises:
            ModelError: an output has a dtype that cannot be sent.
            ResultTooLargeError: the arrays of the first row do not fit into an empty area.
        """
        _check(outputs)
        if run.whole:
            outputs = {name: array[np.newaxis] for name, array in outputs.items()}
        if self._postprocess is not None:
            return _customized(run, outputs, area, self._postprocess)
        if self._filter is not None:
            return _filtered(run, outputs, area, self._filter)
        if not self._in_float16:
            return _stored(run, outputs, area, self._axes)
        run, narrow, faults = _in_float16(run, outputs)
        return [*_stored(run, narrow, area, self._axes), *faults] if run.rows else faults


def holds_nested(array: Array) -> bool:
    """Return whether the items of an array are nested values."""
    if array.dtype.kind != "O" or not array.size or isinstance(array.flat[0], str):
        return False
    return any(isinstance(item, (list, dict)) for item in array.flat) or all(item is None for item in array.flat)


def failed(row: int, error: BaseException, hint: str = "") -> Outcome:
    """Return the outcome of a record that failed in the model or after the model. `hint` follows an exception of the model."""
    code = ErrorCode.RESULT_TOO_LARGE if isinstance(error, ResultTooLargeError) else ErrorCode.INFERENCE_FAILED
    own = isinstance(error, (ResultTooLargeError, ModelError, UserFault))
    message = str(error) if own else f"{type(error).__name__}: {error}{hint}"
    detail = "".join(traceback.format_exception(error))
    return Outcome([row], error=(code, cut(redact(message))), detail=cut_detail(redact(detail)))


def too_many_outputs(row: int) -> Outcome:
    """Return the outcome of a record whose outputs are too many to be described in an empty slot."""
    return failed(row, ResultTooLargeError("the model gave more outputs for one record than a slot can describe"))


def _check(outputs: Outputs) -> None:
    if len(outputs) > _MOST_OUTPUTS:
        raise ModelError(f"the model gave {len(outputs)} outputs, and at most {_MOST_OUTPUTS} can be sent")
    for name, array in outputs.items():
        dtype = array.dtype
        if dtype.kind in _NUMBERS and dtype.itemsize <= _LARGEST_ITEM:
            continue
        if dtype.kind not in "OUT":
            raise ModelError(f"output {name!r} is of dtype {dtype}, which cannot be sent")
        if holds_nested(array):
            continue
        others = {type(item).__name__ for item in array.flat if not isinstance(item, str)}
        if others:
            raise ModelError(
                f"output {name!r} holds {', '.join(sorted(others))} objects, and only numbers and text can be sent"
            )


def _in_float16(run: ModelRun, outputs: Outputs) -> tuple[ModelRun, Outputs, list[Outcome]]:
    """Return the rows that float16 holds, with their outputs in float16, and the outcomes of the other rows."""
    wide = {name: array for name, array in outputs.items() if array.dtype.name in _WIDE}
    try:
        with np.errstate(over="raise"):
            return run, {**outputs, **{name: array.astype(np.float16) for name, array in wide.items()}}, []
    except FloatingPointError:
        lost: dict[int, str] = {}
        for name, array in wide.items():
            beyond = (np.abs(array) >= _BEYOND_FLOAT16) & np.isfinite(array)
            lost |= dict.fromkeys(np.flatnonzero(beyond.reshape(len(array), -1).any(axis=1)).tolist(), name)
    kept = [place for place in range(len(run.rows)) if place not in lost]
    faults = [
        failed(
            run.rows[place],
            ResultTooLargeError(
                f"output {name!r} has numbers that float16 does not hold, {_BEYOND_FLOAT16} or more from 0: set outputDtype: model"
            ),
        )
        for place, name in lost.items()
    ]
    rows, narrow, _ = _in_float16(
        ModelRun([run.rows[place] for place in kept], {}), {name: array[kept] for name, array in outputs.items()}
    )
    return rows, narrow, faults


def _record(outputs: Outputs, index: int) -> dict[str, Array]:
    """Return one record's outputs without the batch dimension. A single item stays an array. A nested value is a list or dict."""
    return {name: array[index] if holds_nested(array) else array[index, ...] for name, array in outputs.items()}


def _stored(run: ModelRun, outputs: Outputs, area: OutputArea, axes: Mapping[str, int]) -> list[Outcome]:
    """Store the arrays of all rows, or else of the first half, quarter, ... of the rows."""
    used, count = area.used, len(run.rows)
    while True:
        try:
            stored = area.place({name: array[:count] for name, array in outputs.items()}, axes)
        except ResultTooLargeError as error:
            area.used = used
            if count > 1:
                count //= 2
            elif used and isinstance(error, NoRoomError):
                area.full = True
                return []
            else:
                raise
        else:
            area.full = count < len(run.rows)
            return [Outcome(run.rows[:count], outputs=stored)]


def _filtered(run: ModelRun, outputs: Outputs, area: OutputArea, keep: Filter) -> list[Outcome]:
    rows: list[int] = []
    spans: list[tuple[int, int]] = []
    faults: list[Outcome] = []
    for index, row in enumerate(run.rows):
        record = _record(outputs, index)
        try:
            spans.append(area.put(_encode(apply_to_rows(keep, record) if run.whole else apply(keep, record))))
        except ValueError as error:
            faults.append(failed(row, ModelError(str(error))))
        except NoRoomError:
            area.full = True
            break
        except ResultTooLargeError as error:
            faults.append(failed(row, error))
        else:
            rows.append(row)
    return [Outcome(rows, filtered=spans), *faults] if rows else faults


def _customized(run: ModelRun, outputs: Outputs, area: OutputArea, process: Postprocess) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for index, row in enumerate(run.rows):
        used = area.used
        try:
            answer = process(_record(outputs, index))
            if isinstance(answer, bytes):
                outcomes.append(Outcome([row], values=[area.put(answer)]))
                continue
            _check(answer)
            outcome = Outcome([row], outputs=area.place({name: array[np.newaxis] for name, array in answer.items()}))
            if outcome.is_large:
                raise ResultTooLargeError(f"postprocess returned {len(answer)} arrays, too many for one record")
            outcomes.append(outcome)
        except NoRoomError as error:
            area.used = used
            if used:
                area.full = True
                break
            outcomes.append(failed(row, error))
        except (UserFault, ModelError, ResultTooLargeError) as error:
            area.used = used
            outcomes.append(failed(row, error))
    return outcomes
