"""Answers of `predict` as text for people."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.client.servers.process.table import Table
from cluster_serving.node.commands.predict_answers import Answer
from cluster_serving.node.commands.predict_json import plain, statistics
from cluster_serving.node.commands.record_view import first_values
from cluster_serving.node.commands.stages_text import stages_table

_CLASS = (2, 3)  # length of an entry of topN: index, value, perhaps a name
_TEXT = 400


def page(answer: Answer, width: int, *, with_stages: bool) -> Iterator[str]:
    """Yield the lines about an answer without error, in `width` columns."""
    yield printable(f"{answer.record}: answered by job {answer.job} in {answer.total_ms:.1f} ms")
    if answer.outputs:
        yield from _tensors(answer.outputs).lines(width)
    else:
        yield from _filtered(answer.value, width)
    if with_stages:
        yield ""
        if answer.stages_ms:
            yield from stages_table(answer.stages_ms, sum(answer.stages_ms.values())).lines(width)
        else:
            yield "The answer has no receipt, which has the times of the stages."


def _tensors(outputs: Mapping[str, Any]) -> Table:
    """Return a table of two lines an output. The second line is the beginning of the content."""
    table = Table("output", "dtype", "shape", "min", "mean", "max", numbers={"min", "mean", "max"}, wide={"output"})
    for name, value in outputs.items():
        for part, content in _parts(name, value):
            if isinstance(content, np.ndarray):
                dtype, shape, *numbers = statistics(content).values()
                table.add(part, dtype, str(shape), *("-" if each is None else f"{each:.6g}" for each in numbers))
                table.add_below(first_values(content))
            else:
                table.add(part, "text", "", "", "", "")
                table.add_below(_short(content))
    return table


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the arrays and texts in an output, each with its place in a sequence or a map."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list) and any(isinstance(each, (np.ndarray, dict)) for each in value):
        items = enumerate(value)
    else:
        yield name, value
    for place, each in items:
        yield from _parts(f"{name}[{place!r}]", each)


def _filtered(value: Any, width: int) -> Iterator[str]:
    """Yield the lines about the value of a filter: a table of classes for `topN`, else JSON."""
    by_output = value if isinstance(value, dict) and all(map(_is_classes, value.values())) else {"": value}
    for output, found in by_output.items():
        if output:
            yield printable(str(output))
        if _is_classes(found):
            names = ["name"] if len(found[0]) == _CLASS[1] else []
            table = Table("class", *names, "value", numbers={"class", "value"}, wide={"name"})
            for index, score, *name in found:
                table.add(index, *(str(each) for each in name), f"{score:.6g}")
            yield from table.lines(width)
        else:
            yield _short(found)


def _is_classes(value: Any) -> bool:
    """Return whether a value is a list of `[index, value]` or `[index, value, name]`."""
    return (
        isinstance(value, list)
        and all(isinstance(entry, list) and len(entry) in _CLASS for entry in value)
        and len({len(entry) for entry in value}) == 1
        and all(type(entry[0]) is int and isinstance(entry[1], float) for entry in value)
    )


def _short(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(plain(value)))
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
