"""Clock of a node, which a run sets: a `sitecustomize.py` in front of the node's path adds an offset to `time.time`."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

_SITE = """
import mmap, os, runpy, struct, sys, time
from importlib.machinery import PathFinder

_here = os.path.dirname(__file__)
with open(os.path.join(_here, "offset"), "rb") as _file:
    _offset = mmap.mmap(_file.fileno(), 8, prot=mmap.PROT_READ)
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + struct.unpack("d", _offset)[0]
time.time_ns = lambda: _time_ns() + int(struct.unpack("d", _offset)[0] * 1e9)
_other = PathFinder.find_spec("sitecustomize", [path for path in sys.path if path != _here])
if _other is not None and _other.origin:
    runpy.run_path(_other.origin)
"""


class Clock:
    """System time of the processes of one node.

    Args:
        directory: place of `sitecustomize.py` and of the offset, made here.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir()
        (directory / "sitecustomize.py").write_text(_SITE, encoding="utf-8")
        (directory / "offset").write_bytes(struct.pack("d", 0.0))

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of processes that have this clock."""
        paths = [str(self._directory), environ.get("PYTHONPATH", "")]
        return {**environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def set_forward(self, seconds: float) -> None:
        """Set the clock so far ahead of this machine's. Running processes see the change at once."""
        with (self._directory / "offset").open("r+b") as file:
            file.write(struct.pack("d", seconds))
