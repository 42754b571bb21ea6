"""Difference between the outputs of two runtimes for the same batch."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.models.base import Array


class Difference(NamedTuple):
    """Difference between found outputs and expected outputs.

    `relative_error` is the largest difference of two values, as a share of the largest finite value expected in the same output
    (of `_SCALE_OF_ZERO`, where all of them are 0).
    `relative_error` is infinite for outputs that cannot be compared: different names, shapes or dtypes, different whole numbers
    or texts, NaN or infinity in place of a number. `arg_max_agreement` is the share of rows with the same arg max along the last
    axis, or a tie, in the output with the smallest share.
    """

    relative_error: float
    arg_max_agreement: float

    def refused(self, tolerance: float) -> str:
        """Return the reason why the difference is too large, or an empty text for an acceptable difference."""
        if np.isinf(self.relative_error):
            return "other outputs: a name, a shape, a dtype, a whole number or a NaN differs"
        if self.relative_error > tolerance:
            return f"differs by {self.relative_error:.2g} of the largest value, accuracyTolerance is {tolerance:g}"
        if self.arg_max_agreement < 1:
            return f"another arg max in {1 - self.arg_max_agreement:.2%} of the rows"
        return ""


_SCALE_OF_ZERO = 1e-5
"""Stands for the largest value of an output that is 0 everywhere. Its values may then differ by 1e-7 with an `accuracyTolerance`
of 0.01, as much as float32 rounds sums of numbers about 1. All other outputs are compared with their own largest value, however
small."""

EQUAL = Difference(0.0, 1.0)
_INCOMPARABLE = Difference(np.inf, 0.0)


def compare(expected: Mapping[str, Array], found: Mapping[str, Array], tolerance: float) -> Difference:
    """Compare the outputs for one batch, by name. Values within `tolerance`, as a share of the largest value, are a tie."""
    if expected.keys() != found.keys():
        return _INCOMPARABLE
    each = [_compare(array, found[name], tolerance) for name, array in expected.items()]
    return Difference(max(one.relative_error for one in each), min(one.arg_max_agreement for one in each))


def apart(expected: Array, found: Array) -> Array:
    """Return the difference of each two values, as a share of the largest finite value expected. Infinite: other kinds of values.

    Both arrays have the same shape. Values other than floats are equal (0), or infinitely far apart.
    """
    if expected.dtype.kind != "f":
        return np.where(expected == found, 0.0, np.inf)
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity, which are equal
        share = np.abs(a - b) / (largest(a) or _SCALE_OF_ZERO)
    return np.where(equal(a, b), 0, np.nan_to_num(share, nan=np.inf, posinf=np.inf))


def equal(expected: Array, found: Array) -> NDArray[np.bool_]:
    """Return where two arrays of floats have the same value, or NaN both."""
    same: NDArray[np.bool_] = (expected == found) | (np.isnan(expected) & np.isnan(found))
    return same


def largest(values: Array) -> float:
    """Return the largest size of a finite value, 0 if there is none."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _compare(expected: Array, found: Array, tolerance: float) -> Difference:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return _INCOMPARABLE
    error = float(apart(expected, found).max(initial=0))
    if error == 0:
        return EQUAL
    if np.isinf(error) and expected.dtype.kind != "f":
        return _INCOMPARABLE
    agreement = 1.0
    if expected.ndim >= 2:
        a = expected.astype(np.float64)
        best, other = (array.argmax(axis=-1, keepdims=True) for array in (expected, found))
        lost = np.take_along_axis(a, best, -1) - np.take_along_axis(a, other, -1)
        agreement = float(np.mean((best == other) | (lost <= tolerance * largest(a))))
    return Difference(error, agreement)
