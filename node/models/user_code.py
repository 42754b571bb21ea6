"""The user's own Python files: executing them, and saying which of their lines failed."""

import inspect
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster_serving.node.models.base import ModelError


class UserFault(Exception):
    """What a method of the user's class raised for one record; the message says which method, what, and where."""


def execute(path: Path, name: str) -> ModuleType:
    """Execute a file as a module; others in its directory can be imported by it.

    Args:
        path: absolute.
        name: of the module.

    Raises:
        Exception: whatever the file raises.
    """
    # In front, as Python does for a script: a helper module beside the file wins over an installed one of its name.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    loader = SourceFileLoader(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True  # the module gets its __file__, to find what lies beside it
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    loader.exec_module(module)
    return module


def public_classes(module: ModuleType) -> list[type[Any]]:
    """The classes that a module defines itself."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and not name.startswith("_") and value.__module__ == module.__name__
    ]


@contextmanager
def faults_of(path: Path) -> Generator[None, None, None]:
    """Turns what the user's code raises while it is loaded into a `ModelError` with file and line."""
    try:
        yield
    except ModelError:
        raise
    except (Exception, SystemExit) as error:
        file, line = _fault_line(error, path)
        place = f"{file}, line {line}" if line else str(file)
        raise ModelError(f"{place}: {_described(error)}") from error


@contextmanager
def faults_in(method: str, path: Path) -> Generator[None, None, None]:
    """Turns what a method of the user's class raises for a record into a `UserFault`.

    A client reads it: of the file it has the name alone.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        file, line = _fault_line(error, path)
        place = f" ({file.name}, line {line})" if line else ""
        raise UserFault(f"{method}: {_described(error)}{place}") from error


def place_of(user_class: type[Any], path: Path) -> str:
    """File and line of a class in the user's file."""
    try:
        return f"{inspect.getsourcefile(user_class)}, line {inspect.getsourcelines(user_class)[1]}"
    except (OSError, TypeError):  # made at run time: no line holds it
        return str(path)


def _described(error: BaseException) -> str:
    # A SyntaxError's own text ends with the place, which is named already.
    reason = error.msg if isinstance(error, SyntaxError) else str(error).split("\n")[0]
    return f"{type(error).__name__}: {reason}"


def _fault_line(error: BaseException, path: Path) -> tuple[Path, int | None]:
    """The user's line that failed, in the file or in a module beside it."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename), error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent)]
    return (Path(own[-1].filename), own[-1].lineno) if own else (path, None)
