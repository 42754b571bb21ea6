"""Paths that TensorFlow can read. It takes the path of variables for a pattern, in which `[` and the backslash have a meaning."""

import contextlib
import re
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

_OF_PATTERNS = re.compile(r"[\[\\]")


@contextlib.contextmanager
def without_patterns(path: Path) -> Generator[Path, None, None]:
    """Yield a path to the same files that is no pattern, through symbolic links if need be.

    Args:
        path: a directory, or the prefix of the files of a checkpoint.
    """
    if not _OF_PATTERNS.search(str(path)):
        yield path
        return
    with TemporaryDirectory() as temporary:
        plain = Path(temporary, "model")
        for file in path.absolute().parent.iterdir():
            if file.name.startswith(path.name):
                Path(f"{plain}{file.name.removeprefix(path.name)}").symlink_to(file)
        yield plain
