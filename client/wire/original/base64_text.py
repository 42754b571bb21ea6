"""Base64 of the original's clients: with line breaks or without.

Python's own functions take 3 ms for an image of 3 x 224 x 224 float32, and 6 ms back. pybase64 takes 0.05 ms for either.
"""

import pybase64

from cluster_serving.client.errors import CodecError

_WHITESPACE = b" \t\r\n"


def from_base64(text: bytes | str, what: str) -> bytes:
    """Return the bytes of a base64 text: standard alphabet, padded, with or without line breaks.

    Args:
        text: base64.
        what: name of the text, for the beginning of an error message.

    Raises:
        CodecError: the text is not base64, or is truncated.
    """
    try:
        return pybase64.b64decode(text, validate=True)
    except ValueError as error:
        raw = text.encode(errors="replace") if isinstance(text, str) else text
        unwrapped = raw.translate(None, _WHITESPACE)
        if len(unwrapped) < len(raw):
            return from_base64(unwrapped, what)
        raise CodecError(f"{what} is not base64, or is truncated: {error}") from error


def to_base64(content: bytes) -> bytes:
    """Return the base64 text of `content`, without line breaks."""
    return pybase64.b64encode(content)
