"""Logging of one process: one line an event on standard output, each naming the process and none a secret."""

import logging
import os
import sys
import traceback
from contextlib import suppress
from types import TracebackType
from typing import Any

import structlog

from cluster_serving.client.servers.process.redaction import redact


def configure(process: str, level: str | None = None) -> None:
    """Set up logging for this process.

    Args:
        process: its name, `supervisor`, `reader`, `worker-0`, ...
        level: the least level that is printed; None takes the one that the supervisor has chosen.
    """
    if level is not None:
        os.environ["CLUSTER_SERVING_LOG_LEVEL"] = level  # children read it here
    least = logging.getLevelNamesMapping()[os.environ.get("CLUSTER_SERVING_LOG_LEVEL", "info").upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer()
            if sys.stdout.isatty()
            else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "process", "event"]),
            _redacted,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=lambda *_: _Printer(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    sys.excepthook = _print_redacted


class _Printer:
    """Prints lines; one that cannot be printed is lost: a full disk or a reader that has gone must not end a node."""

    def msg(self, line: str) -> None:
        """Print one."""
        with suppress(OSError):
            sys.stdout.write(f"{line}\n".encode(errors="backslashreplace").decode())  # names of files may be no UTF-8
            sys.stdout.flush()

    debug = info = warning = error = critical = msg


def _redacted(_logger: object, _method: str, line: Any) -> str:
    """The last of the processors: on the whole line, so that no value can slip past it."""
    return redact(line)


def _print_redacted(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What Python prints for an exception that nobody caught."""
    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))
    sys.stderr.flush()
