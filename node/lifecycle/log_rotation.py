"""Rotation of the log of a node in the background: `logBytes` in `node.log`, and `logFiles` older logs beside it.

    node.log ──copied──► node.log.1 ──renamed──► node.log.2 ──► ... ──► removed

All processes of the node append to one open file, so the file is copied and emptied. A line that is written in the instant between
the two is lost.
"""

import os
import shutil
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from cluster_serving.node.config.config import Config

_LOOK_S = 1.0
_COPY_BYTES = 1 << 20
_COPIES = 1000  # in microseconds each


class LogRotation:
    """Rotation of one log, with size and number of files from a config."""

    def __init__(self, path: Path, config: "Config") -> None:
        self._path = path
        self._ending = threading.Event()
        self.follow(config)

    def follow(self, config: "Config") -> None:
        """Take size and number of files from a changed config."""
        self._most_bytes, self._older_files = config.log_bytes, config.log_files

    @contextmanager
    def running(self) -> Generator[None]:
        """Rotate in a thread for a block, if standard output goes to the log."""
        with suppress(OSError):  # no log, or no standard output
            if os.path.samestat(os.fstat(1), self._path.stat()):
                threading.Thread(target=self._run, name="log-rotation", daemon=True).start()
        try:
            yield
        finally:
            self._ending.set()

    def _run(self) -> None:
        while not self._ending.wait(_LOOK_S):
            with suppress(OSError):  # a full disk, say: the next look tries again, with one older log less
                most_bytes = self._most_bytes  # `follow` may change it meanwhile
                if most_bytes and self._path.stat().st_size >= most_bytes:
                    rotate(self._path, self._older_files)


def older_log(path: Path, number: int = 1) -> Path:
    """Return the path of an older log of the log at `path`. 1: the newest of the older logs."""
    return path.with_name(f"{path.name}.{number}")


def rotate(path: Path, older_files: int) -> None:
    """Empty the log at `path`. Its content becomes the newest of at most `older_files` older logs.

    Raises:
        OSError: the log cannot be copied, and has not been emptied.
    """
    found = {file.name.removeprefix(f"{path.name}.") for file in path.parent.glob(f"{path.name}.*")}
    for number in sorted((int(name) for name in found if name.isdecimal()), reverse=True):
        if number < older_files:
            older_log(path, number).rename(older_log(path, number + 1))
        else:
            older_log(path, number).unlink()
    if not older_files:
        os.truncate(path, 0)
        return
    draft = path.with_name(f".{path.name}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with path.open("rb") as log, os.fdopen(descriptor, "wb") as copy:
            _copy(log, copy)
            copy.flush()
            os.truncate(path, 0)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    draft.rename(older_log(path))  # the last step, for those who follow the log


def _copy(log: BinaryIO, copy: BinaryIO) -> None:
    """Copy a log to its end, which is the end of a line, unless nobody writes the rest of the line.

    The kernel shows a write that crosses a page in halves, for an instant.
    """
    for _ in range(_COPIES):
        shutil.copyfileobj(log, copy, _COPY_BYTES)
        end = log.tell()
        if not end or os.pread(log.fileno(), 1, end - 1) == b"\n":
            return
