"""Logging of one process: one line an event on standard output, each naming the process."""

import logging
import os
import sys

import structlog


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
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
