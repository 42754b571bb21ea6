"""Filters `topN(n)` and `pickTopN(n)`: reduce a record's output to a short list."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.models.base import Array

Filtered = list[list[Any]]


class Filter(msgspec.Struct, frozen=True):
    """Filter ready to be called: `name` as in the configuration, the argument `n`, and the class names, if known."""

    name: str
    n: int
    labels: tuple[str, ...] = ()

    def __call__(self, output: Array) -> Filtered:
        """Return the filtered list of one record's output.

        Args:
            output: array without the batch dimension, any dtype of numbers. `topN` takes any shape, `pickTopN` takes
                (boxes, fields) or (1, boxes, fields).

        Returns:
            For `topN` the n largest values as `[index, value]`, largest first. Among equal values the earlier index comes first.
            With labels each entry is `[index, value, name]`, and the name is `None` where there are fewer labels.
            For `pickTopN` the first n rows. All values or rows if n is larger than their number.

        Raises:
            ValueError: the output is text, or has a shape that the filter does not take.
        """
        if output.dtype.kind not in "biuf":
            raise ValueError(f"{self.name} takes numbers, and this is text")
        filtered = _FILTERS[self.name](output, self.n)
        if not self.labels:
            return filtered
        known = len(self.labels)
        return [[index, value, self.labels[index] if index < known else None] for index, value in filtered]


def parse_filter(text: str) -> Filter | None:
    """Read the configuration's `postProcessing`.

    Args:
        text: `topN(n)` or `pickTopN(n)` with n from 1. Empty or `None` means no filter.

    Raises:
        ValueError: the text is no filter. The message says how to mend the text.
    """
    text = text.strip()
    if text in ("", "None"):
        return None
    if not text.endswith(")") or text.count("(") != 1:
        raise ValueError(
            f"please check your filter format, should be filter_name(filter_args): {text!r} is not, as topN(5) would be"
        )
    name, _, arguments = text[:-1].partition("(")
    name = name.strip()
    if name not in _FILTERS:
        raise ValueError(f"there is no filter {name!r}: it must be one of {', '.join(_FILTERS)}")
    if "," in arguments:
        raise ValueError(f"{name} filter only support 1 argument, please check. It is {text!r}.")
    try:
        n = int(arguments)
    except ValueError as error:
        raise ValueError(
            f"the argument of {name} must be a whole number: {text!r} is not, as {name}(5) would be"
        ) from error
    if n < 1:
        raise ValueError(f"the argument of {name} must be 1 or more, not {n}")
    return Filter(name, n)


def apply(chosen: Filter, outputs: dict[str, Array]) -> object:
    """Filter all outputs of one record.

    Args:
        chosen: the filter.
        outputs: the record's outputs by name, without the batch dimension.

    Returns:
        The filtered list of a single output, otherwise a dict of filtered lists by output name.

    Raises:
        ValueError: the filter refuses an output. The message names the output.
    """
    filtered: dict[str, Filtered] = {}
    for name, output in outputs.items():
        try:
            filtered[name] = chosen(output)
        except ValueError as error:
            raise ValueError(f"output {name!r}: {error}") from error
    return next(iter(filtered.values())) if len(filtered) == 1 else filtered


def apply_to_rows(chosen: Filter, outputs: dict[str, Array]) -> list[object]:
    """Filter each row of a whole batch.

    Args:
        chosen: the filter.
        outputs: the batch's outputs by name, rows first.

    Returns:
        The result of `apply` for each row.

    Raises:
        ValueError: the filter refuses an output, or the outputs differ in the number of rows.
    """
    rows = {array.shape[:1] for array in outputs.values()}
    if len(rows) != 1 or () in rows:
        shapes = ", ".join(f"{name!r} {list(array.shape)}" for name, array in outputs.items())
        raise ValueError(f"{chosen.name} filters a batch row by row, and the outputs have not the same rows: {shapes}")
    batches = zip(*outputs.values(), strict=True)
    return [apply(chosen, dict(zip(outputs, map(np.asarray, row), strict=True))) for row in batches]


def _top(output: Array, n: int) -> Filtered:
    values = output.reshape(-1)
    if values.dtype.kind == "f" and (nan := np.isnan(values)).any():
        # NaN goes below all numbers, because numpy takes NaN for the largest value.
        numbers = np.flatnonzero(~nan)
        indices = np.concatenate((numbers[_largest(values[numbers], n)], np.flatnonzero(nan)))[:n]
    else:
        indices = _largest(values, n)
    return [[index, value] for index, value in zip(indices.tolist(), _floats(values[indices]), strict=True)]


def _largest(values: Array, n: int) -> NDArray[np.intp]:
    """Return the indices of the n largest values, largest first. Values have no NaN."""
    if n == 1 and values.size:
        return np.array([values.argmax()])
    candidates = np.arange(values.size)
    if n < values.size:
        # argpartition alone picks any of the values equal to the n-th largest. Only the threshold is taken from argpartition.
        threshold = values[np.argpartition(values, values.size - n)[values.size - n]]
        above = np.flatnonzero(values > threshold)
        equal = np.flatnonzero(values == threshold)[: n - above.size]
        candidates = np.sort(np.concatenate((above, equal)))
    # A stable ascending sort of the reversed list, reversed, is a stable descending sort. Negation would break unsigned dtypes.
    backwards = candidates[::-1]
    return backwards[np.argsort(values[backwards], kind="stable")][::-1]


def _pick_top(output: Array, n: int) -> Filtered:
    if output.ndim == 3 and output.shape[0] == 1:
        output = output[0]
    if output.ndim != 2:
        raise ValueError(
            "pickTopN post-processing only take 2 or 3 output dim tensor: "
            f"it must be (boxes, fields) or (1, boxes, fields), not {output.shape}"
        )
    return [_floats(row) for row in output[:n]]


_FILTERS: dict[str, Callable[[Array, int], Filtered]] = {"topN": _top, "pickTopN": _pick_top}


def _floats(values: NDArray[Any]) -> list[float]:
    """Return Python floats that print with the shortest digits that restore each value in the array's dtype."""
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        return [float(str(value)) for value in values]
    return [float(value) for value in values]
