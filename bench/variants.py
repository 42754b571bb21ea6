"""Copies of the product with some lines changed, to be run beside the product itself."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import cluster_serving

_PACKAGE = Path(cluster_serving.__file__).parent


class Patch(NamedTuple):
    """In this file of the package, this text becomes that one."""

    file: str
    before: str
    after: str


def copy(place: Path, patches: Iterable[Patch]) -> dict[str, str]:
    """Copy the package into a directory, with these patches; the environment in which programs import the copy.

    Raises:
        SystemExit: a text is not there exactly once: the product has changed, and the patch must too.
    """
    package = place / "cluster_serving"
    shutil.copytree(_PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for patch in patches:
        file = package / patch.file
        text = file.read_text(encoding="utf-8")
        if text.count(patch.before) != 1:
            sys.exit(f"{patch.file} holds this {text.count(patch.before)} times, not once:\n{patch.before}")
        file.write_text(text.replace(patch.before, patch.after), encoding="utf-8")
    return {"PYTHONPATH": str(place)}
