"""Cache of the models that a job has fetched to this machine.

    <directory>/                         flock: held by the process that fetches or removes
        digits.tar.gz-1f0c9b2a6d4e/      complete, never changed. Shared flock: held by each node that uses the model
        .new/                            being fetched, renamed when complete, so that no half model is ever seen

Nodes may share the cache, also from containers. The kernel releases the locks of a process that dies, and the next process
removes the dead process's `.new`.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cluster_serving.node.fetching.progress import Progress

_KEPT = 2  # the served model and its predecessor
_LOOK_S = 0.2
_DIGITS = 12


class Entry:
    """Model in the cache, not removed before `release` or the end of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            os.utime(path)  # the newest entries are kept
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """Release the lock, so that the entry may be removed."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class Cache:
    """Cache of a job. The methods are for the process that holds the lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self, progress: Progress) -> Generator[None]:
        """Hold the lock of the cache for a block.

        Raises:
            GivenUp: the fetch was given up.
            OSError: the directory cannot be made.
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        told = False
        try:
            while not _locked(descriptor, fcntl.LOCK_EX):
                if not told:
                    progress.say("waiting for another node that fetches a model")
                    told = True
                progress.pause(_LOOK_S)
            self._clear()
            try:
                yield
            finally:
                self._clear()
        finally:
            os.close(descriptor)

    def _clear(self) -> None:
        shutil.rmtree(self._new, ignore_errors=True)

    @property
    def _new(self) -> Path:
        return self._directory / ".new"

    def find(self, name: str, version: str) -> Entry | None:
        """Return the entry of a name and version, or None."""
        path = self._path(name, version)
        return Entry(path) if path.is_dir() else None

    def draft(self) -> Path:
        """Make an empty directory to fetch into."""
        self._new.mkdir()
        return self._new

    def add(self, directory: Path, name: str, version: str) -> Entry:
        """Turn a complete directory below the draft into an entry. Removes the draft, and old entries that no node uses."""
        for file in (directory, *directory.rglob("*")):
            _flush(file)  # after a power loss, the disk must not hold the name without the content
        entry = Entry(directory.rename(self._path(name, version)))
        _flush(self._directory)
        self._clear()
        entries = [path for path in self._directory.iterdir() if path.is_dir() and not path.name.startswith(".")]
        entries.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in entries[_KEPT:]:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _locked(descriptor, fcntl.LOCK_EX):
                    path.rename(self._new)  # a half-removed entry must not be found
                    self._clear()
            finally:
                os.close(descriptor)
        return entry

    def _path(self, name: str, version: str) -> Path:
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".")[:60]
        return self._directory / f"{readable}-{hashlib.sha256(version.encode()).hexdigest()[:_DIGITS]}"


def _flush(path: Path) -> None:
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
