"""Processes of Python that wait at their start, before they run anything of ours."""

from pathlib import Path

# Python imports a module of this name at its start.
_SITECUSTOMIZE = """\
import os, sys, time
while os.path.isfile(os.path.join(os.path.dirname(__file__), os.path.basename(sys.orig_argv[-1]))):
    time.sleep(0.01)
"""


def held_starts(directory: Path) -> str:
    """Return the PYTHONPATH of processes that wait as long as a new directory has a file named as their command's last word."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    return str(directory)
