"""Logging of one process: one line per event on standard output. Each line names the process.

No line shows a secret, and no line has control characters for a terminal.
"""

import logging
import os
import sys
import traceback
from contextlib import suppress
from types import NoneType, TracebackType

import structlog

from cluster_serving.client.servers.process.printable import printable_lines
from cluster_serving.client.servers.process.redaction import redact


def configure(process: str, level: str | None = None) -> None:
    """Set up logging for this process.

    Args:
        process: name of the process, `supervisor`, `reader`, `worker-0`, ...
        level: lowest level that is printed. None takes the level that the supervisor has chosen for its child.
    """
    set_level(level or os.environ.get("CLUSTER_SERVING_LOG_LEVEL", "info"))
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _escaped,
            structlog.dev.ConsoleRenderer()
            if sys.stdout.isatty()
            else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "process", "event"]),
            lambda _logger, _method, line: redact(str(line)),  # as the last processor, it lets no value slip past
        ],
        logger_factory=lambda *_: _Printer(),
        cache_logger_on_first_use=False,  # a cached logger would keep its level
    )
    structlog.contextvars.bind_contextvars(process=process)
    sys.excepthook = _print_uncaught


def set_level(level: str) -> None:
    """Set the lowest level that this process prints: `debug`, `info`, ..."""
    least = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(least))


class _Printer:
    """Printer of log lines. An unprintable line is lost, because a full disk or a reader that has gone must not end a node."""

    def msg(self, line: str) -> None:
        """Print one line."""
        with suppress(OSError):
            sys.stdout.write(f"{line}\n".encode(errors="backslashreplace").decode())  # file names may not be UTF-8
            sys.stdout.flush()

    debug = info = warning = error = critical = msg


def _escaped(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape control characters in the values. The secrets go first, because `redact` knows no escaped secret."""
    for key, value in event.items():
        if isinstance(value, str) and value.isprintable():
            continue
        if not isinstance(value, (int, float, NoneType)):
            event[key] = printable_lines(redact(str(value)))
    return event


def _print_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught exception as Python does, without secrets and control characters."""
    sys.stderr.write(printable_lines(redact("".join(traceback.format_exception(kind, error, trace)))))
    sys.stderr.flush()
