"""Imports for less CPU time: each process of a server, and each command, begins with a fifth of a second of imports and more."""

import atexit
import gc
import os
import sys
from importlib import import_module
from typing import Any

_NEW_OBJECTS = 100_000
_UNWANTED = {"structlog": ["rich"], "redis": ["opentelemetry"], "tensorflow": ["matplotlib", "scipy", "sklearn"]}


def make_imports_quick() -> None:
    """Let later imports search for reference cycles rarely and start no threads, and the process end without such a search.

    With Python's own threshold, 700 new objects, a sixth of the CPU time of imports goes into searches that find nothing. numpy's
    threads take half of its import, 0.08 s on two cores and more on many. Servers and commands multiply no matrices, and each
    worker is told its number of threads. At the end of a process, the searches of the interpreter took 0.05 to 0.2 s of CPU.
    """
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def import_lean(*packages: str) -> None:
    """Import structlog without rich, redis without OpenTelemetry, or TensorFlow without what its Keras adapts to.

    Each of these is optional for the package, and can be imported later. structlog colours tracebacks on consoles with rich, which
    no log line needs: 0.06 s of CPU and 5 MB in each process. redis has metrics of its own by OpenTelemetry, which no server turns
    on: 0.05 s and 7 MB. Keras has wrappers for scikit-learn and pictures by matplotlib, which no model needs: a third of the time
    of TensorFlow's import.
    """
    modules: dict[str, Any] = sys.modules
    for package in packages:
        unwanted = [name for name in _UNWANTED[package] if name not in modules]
        modules.update(dict.fromkeys(unwanted))
        try:
            import_module(package)
        finally:
            for name in unwanted:
                del modules[name]
