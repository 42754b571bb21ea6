"""Base64, as clients of the original write it: with line breaks or without."""

import binascii

from cluster_serving.client.errors import CodecError

_WHITESPACE = b" \t\r\n"


def from_base64(text: bytes | str, what: str) -> bytes:
    """The bytes of a base64 text: standard alphabet, padded; line breaks are allowed.

    Args:
        text: base64.
        what: what it is, to begin the message of an error.

    Raises:
        CodecError: it is not base64, or is truncated.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raw = text.encode(errors="replace") if isinstance(text, str) else text
        unwrapped = raw.translate(None, _WHITESPACE)
        if len(unwrapped) < len(raw):
            return from_base64(unwrapped, what)
        raise CodecError(f"{what} is not base64, or is truncated: {error}") from error


def to_base64(content: bytes) -> bytes:
    """The base64 text of some bytes, without line breaks."""
    return binascii.b2a_base64(content, newline=False)
