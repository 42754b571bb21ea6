"""Bytes as text: of an input that takes bytes, and of an output whose name ends in `_bytes`, as TensorFlow Serving calls it.

Surrogates stand for the bytes that are not UTF-8 (PEP 383), so that JSON carries the text and no byte is lost.
"""

BYTES_NAME = "_bytes"
"""End of the names of outputs that are no text."""


def text_of(content: bytes) -> str:
    """Return the text that stands for bytes."""
    return content.decode(errors="surrogateescape")


def bytes_of(text: str) -> bytes:
    """Return the bytes that a text stands for. Surrogates that stand for no byte become question marks."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")
