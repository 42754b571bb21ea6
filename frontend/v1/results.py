"""Results to the body of a response.

    {"predictions": [[0.1, 0.2], ...]}                of rows: a value each, or an object by output name for several outputs
    {"outputs": [[0.1, 0.2], ...]}                    of columns: a tensor, or an object of tensors by output name
    {"results": [[["cat", 0.9], ["dog", 0.1]], ...]}  of classify: label and score, for each example
    {"results": [2.5, ...]}                           of regress: a number for each example

The result of a filter or of the user's `postprocess` is the value of its row. The text of an output whose name ends in `_bytes`
is `{"b64": ...}`. NaN and the infinities are null: TensorFlow Serving writes both as words outside of JSON, and most parsers
then lose the whole answer.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from sanic import HTTPResponse

from cluster_serving.client.wire.bytes_in_text import BYTES_NAME, bytes_of
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.responses import json_response
from cluster_serving.frontend.models.results import check_all

_VALUE = ""  # name of the value in the place of outputs


class Answer(msgspec.Struct, frozen=True, tag="v1"):
    """Form of an answer.

    Attributes:
        verb: verb of the request: `predict`, `classify` or `regress`.
        columns: whether the request has column format.
        is_batch: whether all rows are one record.
    """

    verb: str
    columns: bool
    is_batch: bool

    def response(self, results: Sequence[Result], _accepted: str) -> HTTPResponse:
        """Return 200 and the document of the verb.

        Raises:
            RecordFailed: a row failed.
            BadRequest: the results do not fit the verb, or each other.
        """
        check_all(results)
        document = _DOCUMENTS[self.verb, self.columns](results, self.is_batch)
        return json_response(document)


def predictions(results: Sequence[Result], batched: bool) -> dict[str, Any]:
    """Return the answer to rows.

    Args:
        results: results without errors and with the same outputs, one for each row.
        batched: whether a single result holds all rows. The first dimension of its outputs is then the rows.

    Raises:
        BadRequest: the outputs of a batch differ in length.
    """
    columns = _rows(results, batched)
    if len(columns) == 1:
        return {"predictions": next(iter(columns.values()))}
    return {"predictions": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]}


def outputs(results: Sequence[Result], batched: bool) -> dict[str, Any]:
    """Return the answer to columns. The arguments are as in `predictions`."""
    columns = {name: _whole(name, value) for name, value in results[0].outputs.items()} if batched else {}
    columns = columns or _columns(results, batched)
    return {"outputs": next(iter(columns.values())) if len(columns) == 1 else columns}


def classes(results: Sequence[Result], batched: bool) -> dict[str, Any]:
    """Return the answer to examples for classification. The arguments are as in `predictions`.

    The labels are the `labels` of the node, or the text from the model, or else the index of the class.

    Raises:
        BadRequest: the model gives no scores.
    """
    columns = _rows(results, batched)
    if _VALUE in columns:
        # topN leaves a list of `[index, score]` or `[index, score, label]` of each row.
        ranked: list[list[list[Any]]] = []
        try:
            for value in columns[_VALUE]:
                ranked.append(
                    [[str(pair[-1] if len(pair) > 2 and pair[-1] else pair[0]), float(pair[1])] for pair in value]
                )
        except (TypeError, ValueError, IndexError, KeyError) as error:
            raise _no_scores("a filter or `postprocess` makes something else of them") from error
        return {"results": ranked}
    texts = [name for name, column in columns.items() if column and not isinstance(column[0], np.ndarray | np.generic)]
    scores = [name for name in columns if name not in texts]
    if len(scores) != 1 or len(texts) > 1:
        raise _no_scores(f"it gives {', '.join(columns)}")
    labels = columns[texts[0]] if texts else [None] * len(columns[scores[0]])
    labelled: list[list[list[Any]]] = []
    for label, score in zip(labels, columns[scores[0]], strict=True):
        flat = np.asarray(score).reshape(-1)
        names = map(str, range(flat.size) if label is None else np.array(label, object).reshape(-1))
        labelled.append([list(pair) for pair in zip(names, flat, strict=False)])
    return {"results": labelled}


def numbers(results: Sequence[Result], batched: bool) -> dict[str, Any]:
    """Return the answer to examples for regression. The arguments are as in `predictions`.

    Raises:
        BadRequest: the model does not give one number a row.
    """
    columns = _rows(results, batched)
    found = [np.asarray(value) for value in next(iter(columns.values()))]
    if len(columns) > 1 or any(value.size != 1 or value.dtype.kind not in "biuf" for value in found):
        told = ", ".join(name or "a list" for name in columns)
        raise BadRequest(
            f"regress needs a model that gives one number a row, and this model gives {told}: use :predict"
        )
    return {"results": [value.reshape(-1)[0] for value in found]}


def _rows(results: Sequence[Result], batched: bool) -> dict[str, list[Any]]:
    """Return the values of each output, one a row.

    Raises:
        BadRequest: the outputs differ in length.
    """
    columns = _columns(results, batched)
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise BadRequest("the outputs of this model are not a value for each row: ask with inputs, not instances")
    return columns


def _columns(results: Sequence[Result], batched: bool) -> dict[str, list[Any]]:
    if not results[0].outputs:
        return {_VALUE: [result.value for result in results]}
    columns: dict[str, list[Any]] = {}
    for name in results[0].outputs:
        values: list[Any] = [result.outputs[name] for result in results]
        if batched and np.ndim(values[0]) > 0:
            values = list(values[0])
        if values and isinstance(values[0], np.ndarray):
            # orjson takes the number in an array without dimensions, but not the array.
            columns[name] = [value[()] for value in values] if values[0].ndim == 0 else values
        else:
            columns[name] = _as_bytes(values) if name.endswith(BYTES_NAME) else values
    return columns


def _whole(name: str, value: Any) -> Any:
    """Return an output of a call."""
    if isinstance(value, np.ndarray):
        return value[()] if value.ndim == 0 else value
    return _as_bytes(value) if name.endswith(BYTES_NAME) else value


def _as_bytes(text: Any) -> Any:
    if isinstance(text, list):
        return [*map(_as_bytes, text)]
    return {"b64": base64.b64encode(bytes_of(str(text))).decode()}


def _no_scores(found: str) -> BadRequest:
    return BadRequest(
        f"classify needs a model that gives the scores of classes, or the filter topN; {found}: use :predict"
    )


_DOCUMENTS = {
    ("predict", False): predictions,
    ("predict", True): outputs,
    ("classify", False): classes,
    ("regress", False): numbers,
}
"""Makes the document of an answer, by verb and whether the request has column format."""
