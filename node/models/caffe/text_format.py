"""Messages in the text format of protocol buffers, read without their schema. Each field keeps its text.

The reader of the package protobuf drops or refuses every field that its schema lacks. The schema of a layer is OpenCV's, which
takes the layer as text. See https://protobuf.dev/reference/protobuf/textformat-spec/.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<skip>\s+|\#[^\n]*)|(?P<quoted>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?P<mark>[{}<>\[\]:;,])|(?P<word>[^\s"'#{}<>\[\]:;,]+)"""
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_SHOWN = 40  # characters of a wrong text, which may be a whole binary file
_CLOSING = {"{": "}", "<": ">"}


class Message:
    """The fields of a message in order, with the text of each field."""

    def __init__(self) -> None:
        self._fields: list[tuple[str, str | Message, str]] = []

    def add(self, key: str, value: "str | Message", text: str) -> None:
        """Append a field. `text` is the whole field, including the name."""
        self._fields.append((key, value, text))

    def words(self, key: str) -> list[str]:
        """Return the values of a repeated field of numbers, strings or words."""
        return [value for name, value, _ in self._fields if name == key and isinstance(value, str)]

    def word(self, key: str) -> str:
        """Return the value of a field that stands once, or an empty string if the field is missing."""
        return next(iter(self.words(key)), "")

    def messages(self, *keys: str) -> list[tuple["Message", str]]:
        """Return the messages in the fields called `keys`, each with its text."""
        return [(value, text) for name, value, text in self._fields if name in keys and isinstance(value, Message)]


def read_message(source: str) -> Message:
    """Return the message that the source is.

    Raises:
        ValueError: the source is not in the text format. The message names the line.
        RecursionError: messages are nested too deeply.
    """
    return _Parser(source).message(_Token("end", "", 0, 0))


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def _tokens(source: str) -> Iterator[_Token]:
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            raise ValueError(f"{_line(source, at)} has a string without an end")
        at = match.end()
        if match.lastgroup != "skip":
            yield _Token(match.lastgroup or "", match[0], match.start(), at)
    yield _Token("end", "", at, at)


def _line(source: str, at: int) -> str:
    return f"line {source.count(chr(10), 0, at) + 1}"


def _unescaped(text: str) -> str:
    """Return the content of a string. Escapes stand for bytes: protobuf writes each byte of `ë` as one."""

    def byte(escape: re.Match[bytes]) -> bytes:
        octal, hexadecimal, other = escape.groups()
        if other is not None:
            return _CONTROLS.get(other, other)
        return bytes([(int(octal, 8) if octal else int(hexadecimal, 16)) & 255])

    return _ESCAPE.sub(byte, text.encode(errors="surrogateescape")).decode(errors="surrogateescape")


class _Parser:
    """Parser that goes over the tokens once, with one token of lookahead."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = _tokens(source)
        self._next = next(self._tokens)
        self._end = 0

    def message(self, opening: _Token) -> Message:
        """Return the fields up to the end of the file, or of the message that `opening` begins."""
        closing = _CLOSING.get(opening.text, "")
        message = Message()
        while self._next.text != closing or self._next.kind == "quoted":
            if self._next.kind == "end":
                raise ValueError(f"it ends inside of the message that begins on {_line(self._source, opening.start)}")
            start = self._next.start
            key = self._take("word").text
            values = self._values()
            for value in values:
                message.add(key, value, self._source[start : self._end])
            self._skip(";", ",")
        return message

    def _values(self) -> list[str | Message]:
        self._skip(":")
        if not self._skip("["):
            return [self._value()]
        values: list[str | Message] = []
        while not self._skip("]"):
            values.append(self._value())
            self._skip(",")
        return values

    def _value(self) -> str | Message:
        opening = self._next
        if opening.text in _CLOSING:
            self._take("mark")
            message = self.message(opening)
            self._take("mark")
            return message
        if opening.kind != "quoted":
            return self._take("word").text
        parts: list[str] = []
        while self._next.kind == "quoted":  # adjacent strings form a single string
            parts.append(_unescaped(self._take("quoted").text[1:-1]))
        return "".join(parts)

    def _skip(self, *marks: str) -> bool:
        """Skip the next token if it is in `marks`, and return whether it was skipped."""
        found = self._next.kind == "mark" and self._next.text in marks
        if found:
            self._take("mark")
        return found

    def _take(self, kind: str) -> _Token:
        token = self._next
        if token.kind != kind:
            line = _line(self._source, token.start)
            if token.kind == "end":
                raise ValueError(f"it ends in the middle of a field, on {line}")
            raise ValueError(f"{line} has {token.text[:_SHOWN]!r} where a name or a value should be")
        self._end = token.end
        self._next = next(self._tokens)
        return token
