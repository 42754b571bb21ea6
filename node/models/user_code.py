"""Execution of the user's Python files, and errors that name the failed line of the user's code."""

import inspect
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from cluster_serving.node.models.base import ModelError


class UserFault(Exception):
    """Error of the user's class for a record. The message names the method, the exception and the place."""


_folders: set[str] = set()  # of the files that were executed


def execute(path: Path, name: str) -> ModuleType:
    """Execute a file as a module. The file can import the modules in its directory.

    Files of different directories may each import a module of the same name.

    Args:
        path: absolute path of the file.
        name: name of the module.

    Raises:
        Exception: any exception of the file.
    """
    # In front, as Python does for a script: a helper module beside the file wins over an installed module of the same name.
    folder = str(path.parent)
    sys.path[:] = [folder, *(other for other in sys.path if other != folder)]
    _forget_namesakes(folder)
    _folders.add(folder)
    loader = SourceFileLoader(name, str(path))
    spec = ModuleSpec(name, loader, origin=str(path))
    spec.has_location = True  # sets the module's __file__, by which the module finds files beside it
    module = module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up a class's module by name
    loader.exec_module(module)
    return module


def _forget_namesakes(folder: str) -> None:
    """Forget the modules beside files executed earlier whose names modules in `folder` have too, so that these are imported."""
    for name, module in list(sys.modules.items()):
        place = Path(getattr(module, "__file__", None) or "")
        beside = place.parent.parent if place.stem == "__init__" else place.parent
        if str(beside) in _folders - {folder} and PathFinder.find_spec(name, [folder]) is not None:
            for known in [other for other in sys.modules if f"{other}.".startswith(f"{name}.")]:
                del sys.modules[known]


def public_classes(module: ModuleType) -> list[type[Any]]:
    """Return the public classes that a module itself defines."""
    return [
        value
        for name, value in vars(module).items()
        if inspect.isclass(value) and not name.startswith("_") and value.__module__ == module.__name__
    ]


@contextmanager
def faults_of(path: Path) -> Generator[None, None, None]:
    """Turn an exception of the user's code during loading into a `ModelError` with file and line."""
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
    """Turn an exception that a method of the user's class raises for a record into a `UserFault`.

    A client reads the message, so the message has only the name of the file and not the path.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        file, line = _fault_line(error, path)
        place = f" ({file.name}, line {line})" if line else ""
        raise UserFault(f"{method}: {_described(error)}{place}") from error


def place_of(user_class: type[Any], path: Path) -> str:
    """Return file and line of a class in the user's file."""
    try:
        return f"{inspect.getsourcefile(user_class)}, line {inspect.getsourcelines(user_class)[1]}"
    except (OSError, TypeError):  # the class was made at run time and has no line
        return str(path)


def _described(error: BaseException) -> str:
    # The text of a SyntaxError ends with the place, and the message names the place already.
    reason = error.msg if isinstance(error, SyntaxError) else str(error).split("\n")[0]
    return f"{type(error).__name__}: {reason}"


def _fault_line(error: BaseException, path: Path) -> tuple[Path, int | None]:
    """Return file and line of the user's code that failed, in the file or in a module beside it."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename), error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(path.parent)]
    return (Path(own[-1].filename), own[-1].lineno) if own else (path, None)
