"""Compressed bodies: gzip and deflate (zlib's format: RFC 9110, 8.4.1.2)."""

import re
import zlib

from sanic.exceptions import PayloadTooLarge

from cluster_serving.frontend.http.errors import BadRequest, UnsupportedMediaType

_EITHER_FORMAT = 32 + zlib.MAX_WBITS
_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_REFUSED = re.compile(r"q=0(?:\.0*)?")
_LEAST_BYTES = 1024  # a smaller response consists mostly of its head
_LEVEL = 1


def inflate(body: bytes, encoding: str, most: int) -> bytes:
    """Return the decompressed body of a request.

    Args:
        body: body as received.
        encoding: header `Content-Encoding`, in small letters.
        most: largest size of the result, in bytes.

    Raises:
        PayloadTooLarge: the result would have more bytes. Decompression stops there.
        BadRequest: the body is damaged.
        UnsupportedMediaType: the encoding is neither gzip nor deflate.
    """
    if encoding not in _WINDOWS and encoding != "x-gzip":  # the same as gzip (RFC 9110, 8.4.1.3)
        raise UnsupportedMediaType(f"the content encoding is {encoding[:40]!r}; gzip, deflate and none are read")
    stream = zlib.decompressobj(_EITHER_FORMAT)
    try:
        content = stream.decompress(body, most + 1)
    except zlib.error as error:
        raise BadRequest(f"the body is not {encoding}: {error}") from error
    if len(content) > most:
        raise PayloadTooLarge(f"the body has more than {most} bytes without its compression")
    if not stream.eof or stream.unused_data:
        raise BadRequest(f"the body is not {encoding}: it {'goes on behind its end' if stream.eof else 'is cut off'}")
    return content


def deflate(body: bytes, accepted: str) -> tuple[bytes, str]:
    """Return a response's body, compressed as `Accept-Encoding` allows, and the encoding. Empty: not compressed."""
    if len(body) < _LEAST_BYTES:
        return body, ""
    for offer in accepted.lower().split(","):
        name, _, quality = offer.replace(" ", "").partition(";")
        if name in _WINDOWS and not _REFUSED.fullmatch(quality):
            stream = zlib.compressobj(_LEVEL, wbits=_WINDOWS[name])
            return stream.compress(body) + stream.flush(), name
    return body, ""
