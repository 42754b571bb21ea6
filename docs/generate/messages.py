"""Messages: every sentence that a call, a command, a request or the log may have, collected from the source.

The list changes with every sentence of the program, so it is no file: the site makes it when it is built (`conf.py`).
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PARTS = ("client", "node", "frontend", "swarm")
_LEVELS = {"warning", "error", "critical"}
_KINDS = {
    "Settings": {"ConfigError"},
    "Models": {"ModelError", "NotServed", "SeveralModels", "FetchError", "UserFault", "ResultTooLargeError"},
    "Records and calls": {"InvalidValue", "CodecError", "QueueFull", "ResultTimeout", "TypeError", "ConnectionError"},
    "HTTP": {
        "BadRequest",
        "Forbidden",
        "NotReady",
        "Overloaded",
        "TooManyCalls",
        "Unauthorized",
        "UnknownModel",
        "UnknownResult",
        "UnsupportedMediaType",
    },
}
_INTERNAL = {
    "AssertionError",
    "AttributeError",
    "IndexError",
    "KeyError",
    "NotImplementedError",
    "RingError",
    "SystemExit",
}
_ELSE, _LOG, _PIECES = "Commands", "Log", "Causes, advice and parts of the messages above"
_LEAST_LETTERS = 12  # less is a part of a sentence
_LEAST_WORDS = 4  # less, where nothing else tells that a text is a sentence
_WORD = re.compile(r"[^\w…]*([A-Za-z]+[\w'-]*|…)[^\w…]*")
_HELP = {"help", "description", "short_help", "epilog"}


def messages() -> str:
    """Return a section for each kind of message, as Markdown. `…` stands for a name, a number or another sentence."""
    found: dict[str, set[str]] = {kind: set() for kind in (_ELSE, *_KINDS, _LOG, _PIECES)}
    others: set[str] = set()
    for part in _PARTS:
        for path in (_ROOT / part).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for kind, text in _of_file(path, tree):
                found[kind].add(" ".join(text.split()))
            if "metrics" not in path.parts:  # descriptions, on the page of metrics
                others |= set(_sentences(tree))
    found[_PIECES] = others.difference(*found.values())
    sections = [
        f"## {kind}\n\n" + "\n".join(f"- {_plain(text)}" for text in sorted(texts, key=str.lower))
        for kind, texts in found.items()
    ]
    return "\n\n".join(sections)


def _of_file(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(func=function, args=[first, *rest])):
                text = _template(first) or (_template(rest[0]) if rest else "")
                name = ast.unparse(function).rpartition(".")[2]
                if name not in _INTERNAL and sum(map(str.isalpha, text)) >= _LEAST_LETTERS:
                    yield _kind(name, path), text
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[first, *_]) if (
                level in _LEVELS
            ):
                if text := _template(first):
                    yield _LOG, text
            case _:
                pass


def _sentences(node: ast.AST) -> Iterator[str]:
    """Yield the texts of a line and some words below a node, but for docstrings and the help of options."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return
        case ast.keyword(arg=name) if name in _HELP:
            return
        case ast.Constant(value=str()) | ast.JoinedStr():
            text = _template(node)
            words = [word for word in text.split() if _WORD.fullmatch(word)]
            if "\n" not in text.strip() and len(words) >= _LEAST_WORDS:
                yield " ".join(text.split())
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _sentences(child)


def _kind(name: str, path: Path) -> str:
    if name == "NotReady" and "frontend" not in path.parts:
        return _ELSE
    if name in {"ValueError", "LookupError"}:
        return "Settings" if "config" in path.parts else "Records and calls"
    return next((kind for kind, names in _KINDS.items() if name in names), _ELSE)


def _template(node: ast.expr) -> str:
    """Return a text with `…` for its values, or an empty text for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)
        case _:
            return ""


def _plain(text: str) -> str:
    """Return a text that Markdown leaves as it is."""
    return "".join(f"\\{letter}" if letter in r"\`*_{}[]()<>#+-!|" else letter for letter in text)
