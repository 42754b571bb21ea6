"""Body of a request to records: rows (`instances`, `examples`) or columns (`inputs`).

    {"instances": [{"x": [1, 2], "flag": 1}, ...]}     a row each: an object by name
    {"instances": [[1, 2], ...]}                       a row each, for a model with one input
    {"inputs": {"x": [[1, 2], ...], "flag": [1, ...]}} a tensor each, the batch dimension in front
    {"inputs": [[1, 2], ...]}                          a tensor, for a model with one input
    {"context": {...}, "examples": [{...}, ...]}       of classify and regress: the context belongs to every example

Each row is a record, which the node puts into a batch with records of other requests. Where each record is a call of the model
(`batching: none`), columns are the tensors of the call as they are, and all rows together are a call. A row whose values have
the dimensions of the model is a call by itself.
"""

from collections.abc import Sequence
from typing import Any, cast

from cluster_serving.client.protocol.requests import Fields
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import refuse_callback
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.instances import encode_instance

Row = dict[str, Any]

_ANY_NAME = "x"  # a single input is found by its position
_BYTES = {"b64"}


class Rows:
    """Rows of a request.

    Attributes:
        rows: value of each input by name, for each row, in column format too. The columns of a call are its only row.
        columns: whether the request has column format.
        is_batch: whether all rows are one record, so that the only result has all rows.
    """

    def __init__(self, rows: list[Row], columns: bool = False, is_batch: bool = False) -> None:
        self.rows = rows
        self.columns = columns
        self.is_batch = is_batch

    def records(self, job: Job) -> list[Fields]:
        """Return the records of the rows.

        Raises:
            BadRequest: a value does not fit the model. The message names row and input.
        """
        if self.is_batch and not self.columns:
            names = self.rows[0].keys()
            for at, row in enumerate(self.rows):
                if row.keys() != names:
                    raise BadRequest(f"row {at} has other inputs than row 0, and the model takes all rows as one batch")
            return [_encoded("", {name: [row[name] for row in self.rows] for name in names}, job)]
        return [_encoded(f"row {at}: ", row, job) for at, row in enumerate(self.rows)]


def read_predict(document: Any, job: Job, most: int) -> Rows:
    """Return the rows of a request to `:predict`.

    Args:
        document: JSON of the body.
        job: job of the model.
        most: largest number of rows.

    Raises:
        BadRequest: the document is not of the form above.
    """
    fields = _fields(document)
    if ("instances" in fields) == ("inputs" in fields):
        raise BadRequest("the body has either instances (a list of rows) or inputs (a tensor for each input)")
    if "inputs" in fields:
        inputs = fields["inputs"]
        if not isinstance(inputs, dict) or _is_bytes(cast(Row, inputs), job):
            inputs = {_only_input("inputs", job): inputs}
        if not inputs:
            raise BadRequest("inputs is an empty object")
        if job.described.already_batched:
            return Rows([cast(Row, inputs)], columns=True, is_batch=True)
        columns = {name: _listed(f"input {name!r}", column, most) for name, column in cast(Row, inputs).items()}
        lengths = {name: len(column) for name, column in columns.items()}
        if len({*lengths.values()}) > 1:
            told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise BadRequest(f"all inputs have the same number of rows, the first dimension: {told}")
        return Rows([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)], columns=True)
    rows: list[Row] = []
    for at, instance in enumerate(_listed("instances", fields["instances"], most)):
        if isinstance(instance, dict) and not _is_bytes(cast(Row, instance), job):
            rows.append(cast(Row, instance))
        else:
            rows.append({_only_input(f"row {at}", job): instance})
    return Rows(rows, is_batch=_is_batch(rows, job))


def read_examples(document: Any, job: Job, most: int) -> Rows:
    """Return the rows of a request to `:classify` or `:regress`.

    Raises:
        BadRequest: the document is not of the form above.
    """
    fields = _fields(document)
    if "examples" not in fields:
        raise BadRequest("the body has examples: a list of objects that have a value for each input")
    context = _object("context", fields.get("context", {}))
    examples = _listed("examples", fields["examples"], most)
    rows = [{**context, **_object(f"example {at}", example)} for at, example in enumerate(examples)]
    return Rows(rows, is_batch=_is_batch(rows, job))


def _is_batch(rows: Sequence[Row], job: Job) -> bool:
    """Return whether all rows together are a call of the model, so that each value lacks the first dimension of its input."""
    if not job.described.already_batched:
        return False
    shapes = {spec.name: spec.shape for spec in job.inputs}
    ranks = [(_rank(value), shape) for name, value in rows[0].items() if (shape := shapes.get(name)) is not None]
    return not ranks or any(rank != len(shape) for rank, shape in ranks)


def _rank(value: Any) -> int:
    rank = 0
    while isinstance(value, list):
        rank, value = rank + 1, value[0] if value else None
    return rank


def _fields(document: Any) -> Row:
    fields = _object("the body", document)
    signature = fields.get("signature_name", "")
    if not isinstance(signature, str):
        raise BadRequest("signature_name is text")
    refuse_callback(fields.get("callback"))
    return fields


def _object(what: str, value: Any) -> Row:
    if not isinstance(value, dict):
        raise BadRequest(f"{what} is a JSON object, not {_kind(value)}")
    return cast(Row, value)


def _listed(what: str, value: Any, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{what} is a list, not {_kind(value)}")
    rows: list[Any] = value
    if not rows:
        raise BadRequest(f"{what} is an empty list")
    if len(rows) > most:
        raise BadRequest(f"{what} has {len(rows)} rows; at most {most} are taken (maxInstances)")
    return rows


def _is_bytes(value: Row, job: Job) -> bool:
    """Return whether an object is the value `{"b64": ...}`, and not an object of values."""
    return value.keys() == _BYTES and all(spec.name != "b64" for spec in job.inputs)


def _only_input(what: str, job: Job) -> str:
    """Return the name of the input for a value without a name."""
    if len(job.inputs) > 1:
        names = ", ".join(spec.name for spec in job.inputs)
        raise BadRequest(
            f"{what} is a value without a name, and the model takes {names}: give an object with a value for each"
        )
    return job.inputs[0].name if job.inputs else _ANY_NAME


def _encoded(where: str, row: Row, job: Job) -> Fields:
    try:
        return encode_instance(row, job)
    except BadRequest as error:
        raise BadRequest(f"{where}{error}") from error


def _kind(value: Any) -> str:
    kinds = {type(None): "null", str: "text", dict: "an object", list: "a list", bool: "true or false"}
    return kinds.get(type(value), "a number")
