"""Tracebacks and warnings that end at the line of the program.

A call of a queue stands on up to ten frames of this package, and an error of Redis or of a file on many more. The message of an
error has all that a program needs, so the error leaves the public method without frames of the package, and without a cause.
`python -X dev` shows them.
"""

import inspect
import sys
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

from cluster_serving.client.errors import ClusterServingError

Call = TypeVar("Call", bound=Callable[..., Any])

_PACKAGE = __name__.rpartition(".")[0]


class _Short:
    """Context whose errors get short tracebacks."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, ClusterServingError):
            error.__cause__ = None
            error.__traceback__ = _outside(error.__traceback__)


_SHORT = _Short()


def short_tracebacks(call: Call) -> Call:
    """Return a public method whose errors of this package have short tracebacks: a function, coroutine function or generator."""
    if sys.flags.dev_mode:
        return call
    return cast(Call, wraps(call)(_wrapped(call)))


def warn(message: str) -> None:
    """Give a `RuntimeWarning` at the line of the program that called this package."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and _is_inside(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def _wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
    def function(*arguments: Any, **named: Any) -> Any:
        with _SHORT:
            return call(*arguments, **named)

    async def coroutine(*arguments: Any, **named: Any) -> Any:
        with _SHORT:
            return await cast("Coroutine[Any, Any, Any]", call(*arguments, **named))

    def generator(*arguments: Any, **named: Any) -> Generator[Any]:
        with _SHORT:
            yield from call(*arguments, **named)

    async def async_generator(*arguments: Any, **named: Any) -> AsyncGenerator[Any]:
        with _SHORT:
            async with aclosing(cast("AsyncGenerator[Any]", call(*arguments, **named))) as items:
                async for item in items:
                    yield item

    if inspect.iscoroutinefunction(call):
        return coroutine
    if inspect.isgeneratorfunction(call):
        return generator
    return async_generator if inspect.isasyncgenfunction(call) else function


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of this package. The frames of the program's own generators stay."""
    if traceback is None:
        return None
    rest = _outside(traceback.tb_next)
    if _is_inside(traceback.tb_frame):
        return rest
    traceback.tb_next = rest
    return traceback


def _is_inside(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)
