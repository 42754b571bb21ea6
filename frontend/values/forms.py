"""Parts of a `multipart/form-data` body (RFC 7578), read by the package multipart."""

from dataclasses import dataclass

from multipart import MultipartError, MultipartSegment, ParserLimitReached, PushMultipartParser, parse_options_header

from cluster_serving.frontend.http.errors import BadRequest

_MAX_PARTS = 16_384
_MAX_HEADER_BYTES = 8192


@dataclass
class Part:
    """One part of a form.

    Attributes:
        name: name of the field, or empty.
        is_file: whether the part has a file name.
        kind: content type in small letters, without parameters, or empty.
        content: bytes of the part.
    """

    name: str
    is_file: bool
    kind: str
    content: bytes = b""


def read_form(body: bytes, content_type: str) -> list[Part]:
    """Return the parts of a form, in order.

    Args:
        body: body of the request.
        content_type: header `Content-Type`, with the boundary.

    Raises:
        BadRequest: the body is no such form, or has too many parts or too long headers.
    """
    boundary = parse_options_header(content_type)[1].get("boundary")
    if not boundary:
        raise BadRequest("the content type multipart/form-data has no boundary")
    parts: list[Part] = []
    try:
        # Sanic decodes the bytes of headers with surrogates.
        with PushMultipartParser(
            boundary.encode(errors="surrogateescape"), max_header_size=_MAX_HEADER_BYTES, max_segment_count=_MAX_PARTS
        ) as parser:
            for event in parser.parse(body):
                if isinstance(event, MultipartSegment):
                    parts.append(Part(event.name or "", event.filename is not None, event.content_type or ""))
                elif event is not None:
                    parts[-1].content += event
    except ParserLimitReached as error:
        limits = f"a form has at most {_MAX_PARTS} parts, and each header {_MAX_HEADER_BYTES} bytes"
        raise BadRequest(f"the form cannot be read: {error.args[0]}; {limits}") from error
    except MultipartError as error:
        raise BadRequest(f"the form cannot be read: {error.args[0]}") from error
    return parts
