"""Client: every public class, method and function, from its signature and docstring."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise
from types import FunctionType
from typing import Any, Never

from cluster_serving import client
from cluster_serving.client.api import Api, ConnectionSettings

_TOP = """# Client

`from cluster_serving.client import …`. The bare install has all of it. [Connect a program](../how-to/connect.md) and
[records and answers](../how-to/records.md) show how it is used; `py.typed` is set, so editors and type checkers know every name.
"""
_ORDER = ("InputQueue", "OutputQueue", "AsyncInputQueue", "AsyncOutputQueue", "Result")
_LISTS = {"Args", "Attributes", "Raises"}
_SECTIONS = {*_LISTS, "Returns", "Yields"}


def client_page() -> str:
    """Return the page."""
    names = [*_ORDER, *(name for name in sorted(client.__all__, key=str.lower) if name not in _ORDER)]
    parts = [_TOP, "## Settings of every queue\n", *_settings()]
    for name in names:
        thing = getattr(client, name)
        if inspect.isclass(thing):
            parts += _class(name, thing)
        elif callable(thing):
            parts.append(_member(name, thing, "##"))
        else:
            parts.append(f"## `{name}`\n\n{_alias(name)}\n")
    text = "\n".join(parts).rstrip("\n") + "\n"
    return text.replace("see `ConnectionSettings`", "see [above](#settings-of-every-queue)")


def _settings() -> Iterator[str]:
    yield _prose((inspect.getdoc(Api) or "").partition("\nArgs:")[0])
    yield "| setting | type | |\n|---|---|---|"
    told = _told(inspect.getsource(ConnectionSettings), "class")
    for name, kind in ConnectionSettings.__annotations__.items():
        shown = kind.__name__ if isinstance(kind, type) else str(kind)
        yield f"| `{name}` | `{shown.replace(' | None', '').replace('|', 'or')}` | {told[name]} |"
    yield ""


def _alias(name: str) -> str:
    """Return the docstring behind the type of a name."""
    for module in (each for key, each in sys.modules.items() if key.startswith(client.__name__)):
        if found := _told(inspect.getsource(module)).get(name):
            return found
    raise LookupError(f"{name} has no docstring")


def _told(source: str, within: str = "") -> dict[str, str]:
    """Return the docstring behind each assignment of a module or class."""
    tree = ast.parse(textwrap.dedent(source))
    body = tree.body[0].body if within and isinstance(tree.body[0], ast.ClassDef) else tree.body
    told: dict[str, str] = {}
    for each, following in pairwise(body):
        match each, following:
            case (
                (ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name))),
                ast.Expr(ast.Constant(str(text))),
            ):
                told[name] = inspect.cleandoc(text)
            case _:
                pass
    return told


def _class(name: str, thing: type) -> Iterator[str]:
    yield f"## `{name}`\n"
    bases = [base.__name__ for base in thing.__bases__ if base.__module__ != "builtins" or issubclass(base, Exception)]
    if issubclass(thing, Exception):
        yield f"Also: {', '.join(f'`{base}`' for base in bases)}.\n"
    elif "__init__" in vars(thing) or issubclass(thing, Api):
        yield f"```python\n{name}{_signature(thing.__init__)}\n```\n"
    yield _prose(inspect.getdoc(thing) or "")
    if issubclass(thing, Enum):
        yield ", ".join(f"`{each.value}`" for each in thing) + ": [causes and cures](errors.md).\n"
    for member, value in _members(thing):
        yield _member(f"{name}.{member}", value, "###")


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield methods and properties, with the inherited ones of our own base classes."""
    seen: set[str] = set()
    for each in thing.__mro__:
        if not each.__module__.startswith("cluster_serving"):
            continue
        for name, value in vars(each).items():
            wrapped = inspect.unwrap(value) if isinstance(value, FunctionType) else value
            documented = getattr(value, "__doc__", None)
            if name.startswith("_") or name in seen or not documented or not _is_member(wrapped):
                continue
            seen.add(name)
            yield name, value


def _is_member(value: Any) -> bool:
    return isinstance(value, (FunctionType, property, classmethod, staticmethod)) or hasattr(value, "attrname")


def _member(name: str, value: Any, heading: str) -> str:
    function = getattr(value, "__func__", value)
    title = f"{heading} `{name}`\n\n"
    if isinstance(function, FunctionType):
        word = "async def " if inspect.iscoroutinefunction(function) else "def "
        title += f"```python\n{word}{name.rpartition('.')[2]}{_signature(function)}\n```\n\n"
    return title + _prose(inspect.getdoc(value) or "")


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        each
        for each in signature.parameters.values()
        if each.name not in {"self", "cls"} and each.annotation is not Never
    ]
    text = _names(str(signature.replace(parameters=parameters)))
    text = re.sub(r"\*<class '(\w+)'>", r"Unpack[\1]", text).replace(_names(str(client.Value)), "Value")
    text = re.sub(r"Union\[NDArray\[Any\], Any, (\w+), (.+)\]$", r"Answer | \1 | \2", text)
    text = text.replace("NDArray[Any] | Any", "Answer")
    return text if len(text) < 80 else _folded(text)


def _names(text: str) -> str:
    """Return the text of a type without the names of modules."""
    text = re.sub(r"\b(?:cluster_serving|collections|typing|numpy)(?:\.\w+)*\.(?=\w)", "", text)
    return re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[(\w+)\]\]", r"NDArray[\1]", text)


def _folded(text: str) -> str:
    """Return a signature with a line for each parameter."""
    inner, _, result = text.rpartition(")")
    parts: list[str] = []
    depth = 0
    for character in inner.removeprefix("("):
        depth += character in "[({"
        depth -= character in "])}"
        if character == "," and depth == 0:
            parts.append("")
        elif not parts:
            parts.append(character)
        else:
            parts[-1] += character
    return "(\n" + "".join(f"    {part.strip()},\n" for part in parts) + f"){result}"


def _prose(text: str) -> str:
    """Return a docstring of Google's form as Markdown."""
    lines: list[str] = []
    section = ""
    for line in text.splitlines():
        title = line.strip().removesuffix(":")
        if line == f"{title}:" and title in _SECTIONS:
            section = title
            lines.append(f"**{title}**" + ("\n" if title in _LISTS else ":"))
        elif section in _LISTS and re.match(r" {4}\w", line):
            name, _, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}")
        elif section in _LISTS and line.strip():
            lines.append(f"  {line.strip()}")
        elif section and line.strip():
            lines.append(line.strip())
        else:
            section = "" if not line.strip() else section
            lines.append(line)
    return "\n".join(lines) + "\n"
