"""Bytes as the text of an output whose name ends in `_bytes`, as TensorFlow Serving calls outputs that are no text.

Surrogates stand for the bytes that are not UTF-8 (PEP 383), so that JSON carries the text and no byte is lost.
"""

BYTES_NAME = "_bytes"
"""End of the names of such outputs."""


def text_of(content: bytes) -> str:
    """Return the text that stands for bytes."""
    return content.decode(errors="surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes that a text stands for. Surrogates that stand for no byte become question marks."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")
