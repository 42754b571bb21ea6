"""Files and forms to instances, for uploads instead of JSON."""

from typing import Any, NamedTuple

import orjson
from sanic.headers import parse_content_header

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.frontend.errors import BadRequest
from cluster_serving.frontend.http.json_body import check_parts
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.json_values import listed

_MAX_PARTS = 16_384
_MAX_HEAD_BYTES = 8192
_JSON = "application/json"
_FILE_NAMES = ("filename", "filename*")


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
    file and field are text, or a JSON list if the input takes a list. The n-th part of each name belongs to the n-th instance.

    Raises:
        BadRequest: the body is no such form, or the names have different numbers of parts.
    """
    parts = [part for part in _parts(body, content_type) if part.name]
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


class _Part(NamedTuple):
    """One part of a form. `kind` is the content type, as far as it is stated."""

    name: str
    is_file: bool
    kind: str
    content: bytes


def _parts(body: bytes, content_type: str) -> list[_Part]:
    """Return the parts of a form.

    Sanic's reader takes hours for some file names, and loses the last part of a form that is cut off.
    """
    boundary = str(parse_content_header(content_type)[1].get("boundary", "")).encode(errors="surrogateescape")
    if not boundary:
        raise BadRequest("the content type multipart/form-data has no boundary")
    line = b"\r\n--" + boundary
    if body.count(line) > _MAX_PARTS:
        raise BadRequest(f"the form has more than {_MAX_PARTS} parts")
    _, *parts = (b"\r\n" + body).split(line)
    if not parts or not parts.pop().startswith(b"--"):
        raise BadRequest("the form cannot be read: it does not end in its boundary with -- before and behind it")
    found: list[_Part] = []
    for part in parts:
        head, empty_line, content = part.partition(b"\r\n\r\n")
        if not empty_line or len(head) > _MAX_HEAD_BYTES:
            raise BadRequest(
                f"the form cannot be read: a part has no headers, or more than {_MAX_HEAD_BYTES} bytes of them"
            )
        name, is_file, kind = "", False, ""
        for header in head.decode(errors="replace").split("\r\n"):
            field, _, text = header.partition(":")
            value, parameters = parse_content_header(text)
            if field.lower() == "content-disposition":
                name, is_file = str(parameters.get("name", "")), not parameters.keys().isdisjoint(_FILE_NAMES)
            elif field.lower() == "content-type":
                kind = value
        found.append(_Part(name, is_file, kind, content))
    return found


def _value(part: _Part, taker: TensorSpec | None) -> Any:
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
        raise BadRequest(f"input {listed([part.name])}: this part is text that is not UTF-8: {error}") from error
    if taker is not None and not taker.row_shape:
        return text
    try:
        value: Any = orjson.loads(text)
    except ValueError:
        return text
    return text if taker is not None and not isinstance(value, list) else value
