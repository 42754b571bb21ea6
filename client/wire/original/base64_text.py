"""Base64 of the original's clients: with line breaks or without."""

import binascii

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
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raw = text.encode(errors="replace") if isinstance(text, str) else text
        unwrapped = raw.translate(None, _WHITESPACE)
        if len(unwrapped) < len(raw):
            return from_base64(unwrapped, what)
        raise CodecError(f"{what} is not base64, or is truncated: {error}") from error


def to_base64(content: bytes) -> bytes:
    """Return the base64 text of `content`, without line breaks."""
    return binascii.b2a_base64(content, newline=False)
