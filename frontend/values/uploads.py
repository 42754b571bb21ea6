"""Files and forms to instances, for uploads instead of JSON."""

from typing import Any

import orjson

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import listed
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import check_parts
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.forms import Part, read_form

_JSON = "application/json"


def image_instances(body: bytes) -> list[dict[str, Any]]:
    """Return the one instance in a body of `image/...`: a file for a model of one input.

    Raises:
        BadRequest: the body is empty.
    """
    if not body:
        raise BadRequest("the body is empty, and not an image")
    return [{"image": body}]


def form_instances(body: bytes, content_type: str, job: Job) -> list[dict[str, Any]]:
    """Return the instances of a `multipart/form-data` body. Each part is an input, by its name.

    A file is an image, or the JSON value of a file of `application/json`. A field is JSON, else text. For an input of text,
    file and field are text, or a JSON list if the input takes a list, or a file is any bytes if the input takes them. The n-th
    part of each name belongs to the n-th instance.

    Raises:
        BadRequest: the body is no such form, or the names have different numbers of parts.
    """
    parts = [part for part in read_form(body, content_type) if part.name]
    if not parts:
        raise BadRequest("the form has no parts with a name")
    check_parts(b"".join(part.content for part in parts if not part.is_file or part.kind == _JSON))
    values: dict[str, list[Any]] = {}
    for part in parts:
        # A form has no order, so a model with several inputs finds the input of a part by name alone.
        named = [spec for spec in job.inputs if spec.name == part.name] or job.inputs
        taker = named[0] if len(named) == 1 and named[0].is_text else None
        values.setdefault(part.name, []).append(_value(part, taker))
    if len({*map(len, values.values())}) > 1:
        found = ", ".join(f"{len(each)} of {name[:60]!r}" for name, each in list(values.items())[:16])
        raise BadRequest(f"the form has {found}; each instance takes one of every name")
    return [dict(zip(values, each, strict=True)) for each in zip(*values.values(), strict=True)]


def _value(part: Part, taker: TensorSpec | None) -> Any:
    """Return the value of a part. `taker` is the input of the part, if the input takes text."""
    if part.is_file and part.kind == _JSON:
        try:
            return orjson.loads(part.content)
        except ValueError as error:
            raise BadRequest(f"the file {listed([part.name])} is not JSON: {error}") from error
    if part.is_file and taker is None:
        return part.content
    try:
        text = part.content.decode()
    except UnicodeDecodeError as error:
        if part.is_file and taker is not None and taker.takes_bytes:
            return part.content
        raise BadRequest(f"input {listed([part.name])}: this part is text that is not UTF-8: {error}") from error
    if taker is not None and not taker.row_shape:
        return text
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        return text
    return text if taker is not None and not isinstance(value, list) else value
