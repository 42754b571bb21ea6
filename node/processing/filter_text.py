"""Text of an output: JSON, or exactly the text of the original product.

The original puts no commas between the pairs of a filter, prints numbers like Java's `Float.toString`, and writes the lists of
several outputs without a separator:

    [[4,5.0][3,4.0]]        filtered
    {"4":"5.0","3":"4.0"}   filtered, in 0.7
    [[4.0,5.0],[3.0,4.0]]   not filtered, before 0.9
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

_decode = msgspec.msgpack.Decoder().decode
_SCIENTIFIC_BELOW, _SCIENTIFIC_FROM = 1e-3, 1e7


def json_text(filtered: memoryview) -> bytes:
    """Convert a filtered value from msgpack to JSON. Numbers that JSON does not have become null."""
    return msgspec.json.encode(_decode(filtered))


def legacy_text(filtered: memoryview) -> bytes:
    """Convert a filtered value from msgpack to the original's text, without class names."""
    return _text(_decode(filtered)).encode()


def classes_text(filtered: memoryview) -> bytes:
    """Convert the pairs of `topN` from msgpack to the text of 0.7: an object of each class and its probability, as texts.

    Of several outputs the first is taken.
    """
    found = _decode(filtered)
    pairs = next(iter(cast("Mapping[str, Any]", found).values())) if isinstance(found, dict) else found
    return msgspec.json.encode({str(index): java_float(value) for index, value, *_ in pairs})


def nested_text(outputs: Sequence[NDArray[Any]]) -> bytes:
    """Convert outputs that no filter has shortened to the text of versions before 0.9: nested lists, one after another."""
    return "".join(map(_nested, outputs)).encode()


def java_float(value: float) -> str:
    """Format a number like Java's `Float.toString`, with the shortest digits that restore the float32.

    https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/lang/Float.html#toString(float)
    """
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinity, as in the original
        number = np.float32(value)
    if number == 0 or _SCIENTIFIC_BELOW <= abs(number) < _SCIENTIFIC_FROM:
        return np.format_float_positional(number, trim="0")
    if np.isfinite(number):
        return np.format_float_scientific(number, trim="0", exp_digits=1).replace("e+", "E").replace("e", "E")
    return "NaN" if np.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _nested(output: NDArray[Any]) -> str:
    return f"[{','.join(map(_nested, output))}]" if output.ndim else java_float(float(output))


def _text(value: object) -> str:
    if isinstance(value, dict):
        return "".join(map(_text, cast("Mapping[str, object]", value).values()))
    rows = cast("list[Any]", value)
    first = rows[0] if rows else []
    if isinstance(first, dict) or (first and isinstance(first[0], list)):
        return "".join(map(_text, rows))  # of a record that is a whole batch
    texts: list[str] = []
    for row in rows:
        numbers = [
            java_float(item) if isinstance(item, float) else str(item) for item in row if isinstance(item, (int, float))
        ]
        texts.append(f"[{','.join(numbers)}]")
    return f"[{''.join(texts)}]"
