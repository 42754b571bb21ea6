"""Results of a request's records to the tensors of the answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.nested import is_nested
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import write
from cluster_serving.frontend.models.results import check_all

VALUE = "value"
"""Output of a job whose filter or `postprocess` makes a JSON document of each record."""


def joined(results: Sequence[Result], stacked: bool, outputs: Sequence[TensorSpec] = ()) -> dict[str, Array]:
    """Return the outputs of a request by name, in the model's order. Text is `str` objects.

    Args:
        results: results of the records, in order.
        stacked: whether each result is a row. Otherwise the only result is the whole answer.
        outputs: outputs of the model. The rows of an output that is not named are put in front.

    Raises:
        RecordFailed: a record failed.
        BadRequest: the rows have different outputs, or an output has different shapes.
    """
    check_all(results)
    columns: list[dict[str, Array]] = []
    for result in results:
        if not result.outputs:
            columns.append({VALUE: np.array(write(result.value).decode(), object)})
            continue
        columns.append(
            {
                name: output if isinstance(output, np.ndarray) else _text(output)
                for name, output in result.outputs.items()
            }
        )
    if not stacked:
        return columns[0]
    axes = {spec.name: spec.batch_axis for spec in outputs}
    return {name: _stack(name, [column[name] for column in columns], axes.get(name, 0)) for name in columns[0]}


def _text(output: Any) -> Array:
    """Return text, or the JSON of a sequence or map."""
    return np.array(write(output).decode() if is_nested(output) else output, object)


def _stack(name: str, rows: Sequence[Array], axis: int | None) -> Array:
    if axis is None:
        return rows[0]
    if len(rows) == 1:
        return np.expand_dims(rows[0], axis)
    shapes = {row.shape for row in rows}
    if len(shapes) > 1:
        named = " and ".join(str(list(shape)) for shape in sorted(shapes)[:2])
        raise BadRequest(
            f"the rows of output {name!r} have different shapes, {named}, which no tensor holds: ask for them one by one"
        )
    return np.stack(rows, axis)
