"""Proof that rows may share a batch: the outputs of rows run alone, beside the outputs of the same rows run together.

Some models take a batch and answer only its first row, or mix its rows, without an error: detectors exported for one image,
networks exported in training mode. The runtimes do not notice. A difference within `accuracyTolerance` is accepted, as between
two runtimes: the last bits may differ with the size of a batch.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from cluster_serving.node.engines.accuracy import apart
from cluster_serving.node.models.base import Array

ROWS = 4
"""Number of rows of a proof."""

Run = Callable[[dict[str, Array], int], Mapping[str, Array]]
_SLOW_S, _FEW = 0.1, (0, 1)  # seconds of a row from which on few rows are run
_LONGEST = 200  # characters of an error
_LONGEST_FAULT = 300  # characters: a name in it may be of any length, and the ring keeps 2 KiB
_TELLING = 1e-4  # rows with outputs this far apart, as a share of the largest value, show whether a batch mixes rows


class Proof(msgspec.Struct, frozen=True):
    """Result of a proof.

    `difference`: largest difference, as a share of the largest value of an output. `fault`: reason why rows must not share a
    batch, or empty. `is_lasting`: False for rows that failed together, because lack of memory, say, may have been the cause.
    """

    difference: float = 0.0
    fault: str = ""
    is_lasting: bool = True

    def described(self) -> str:
        """Return the result for people, such as `checked: largest difference 2e-07` or `row 2 differs by 0.9`."""
        return self.fault or f"checked: largest difference {self.difference:.1g}"


def prove(
    run: Run, rows: dict[str, Array], tolerance: float, together: Mapping[str, Array] | None = None
) -> Proof | None:
    """Run rows alone, together and in reverse order, and compare the outputs.

    Args:
        run: runs the model on arrays with the rows in front, and on their number.
        rows: arrays of a few different rows.
        tolerance: largest accepted difference, as a share of the largest value of an output.
        together: outputs of the rows in a batch that has been run. None: the rows are run together, in both orders.

    Returns:
        The result, or `None` if the rows tell nothing: the model gives all of them the same, alone and together.

    Raises:
        Exception: any exception of a row alone.
    """
    begun_s = time.perf_counter()
    alone = [_kept(run(taken(rows, [0]), 1))]
    if time.perf_counter() - begun_s > _SLOW_S:
        rows, together = taken(rows, _FEW), together and taken(together, _FEW)
    count = len(next(iter(rows.values())))
    alone += [_kept(run(taken(rows, [row]), 1)) for row in range(1, count)]
    try:
        batches = [together] if together is not None else _both_orders(run, rows, count)
    except Exception as error:  # a model may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        return replace(_fault(f"{count} rows fail together: {reason[:_LONGEST]}"), is_lasting=False)
    found = [_compared(alone, batch, tolerance) for batch in batches]
    faults = [proof for proof in found if proof is not None and proof.fault]
    if not faults:
        telling = [proof.difference for proof in found if proof is not None]
        return Proof(max(telling)) if telling else None
    again = _compared(alone[:1], _kept(run(taken(rows, [0]), 1)), tolerance)
    if again is not None and again.fault:
        return _fault(f"{again.fault} from run to run")
    return faults[0]


def taken(arrays: Mapping[str, Array], rows: Sequence[int]) -> dict[str, Array]:
    """Return a copy of some rows of each array."""
    return {name: array[list(rows)] for name, array in arrays.items()}


def _both_orders(run: Run, rows: dict[str, Array], count: int) -> list[dict[str, Array]]:
    order = range(count)[::-1]
    return [_kept(run(rows, count)), taken(run(taken(rows, order), count), order)]


def _kept(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return a copy of outputs, which the next run may overwrite."""
    return {name: array.copy() for name, array in outputs.items()}


def _compared(alone: Sequence[Mapping[str, Array]], together: Mapping[str, Array], tolerance: float) -> Proof | None:
    """Compare the outputs of each row alone with the rows of a batch."""
    largest, is_telling = 0.0, False
    for name in alone[0]:
        found = together[name]
        for row, outputs in enumerate(alone):
            if (shape := outputs[name].shape[1:]) != found.shape[1:]:
                return _fault(f"row {row} of {name!r} has shape {[*shape]}, and {[*found.shape[1:]]} in a batch")
        expected, found = _numbers(np.concatenate([outputs[name] for outputs in alone])), _numbers(found)
        if expected.shape != found.shape:
            return _fault(f"the rows of {name!r} have other keys in a batch")
        differences = _by_row(np.minimum(apart(expected, found), apart(found, expected)))
        largest = max(largest, float(differences.max()))
        if largest > tolerance:
            row = int(differences.argmax())
            by = f" by {largest:.2g}" if np.isfinite(largest) else ": another whole number, text or NaN"
            return _fault(f"row {row} differs{by}")
        for further in range(1, len(alone)):
            differ = _by_row(apart(expected, np.roll(expected, further, axis=0))) > _TELLING
            same = differ & (_by_row(apart(found, np.roll(found, further, axis=0))) == 0)
            if same.any():
                row = int(same.argmax())
                return _fault(f"rows {(row - further) % len(alone)} and {row} get the same in a batch")
            is_telling |= bool(differ.any())
    return Proof(largest) if is_telling else None


def _fault(reason: str) -> Proof:
    return Proof(fault=reason[:_LONGEST_FAULT])


def _by_row(differences: Array) -> Array:
    """Return the largest difference in each row."""
    largest: Array = differences.max(axis=tuple(range(1, differences.ndim)), initial=0)
    return largest


def _numbers(array: Array) -> Array:
    """Return the values of maps as an array with a row for each map, and any other array as it is."""
    if array.dtype == object and all(isinstance(item, dict) for item in array.flat):
        maps: list[dict[Any, Any]] = array.ravel().tolist()
        if all(each.keys() == maps[0].keys() for each in maps):
            return np.array([list(each.values()) for each in maps])
    return array
