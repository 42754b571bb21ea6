"""The models that one job has fetched to this machine.

    <directory>/                         flock: whoever fetches or removes
        digits.tar.gz-1f0c9b2a6d4e/      complete, never changed; shared flock: in use by a node
        .new/                            being fetched; renamed when complete, so nothing half is ever seen

Nodes may share it, in containers too. The kernel gives up the locks of a process that dies, and who comes next removes its `.new`.
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

_KEPT = 2  # the one that is served, and the one before
_LOOK_S = 0.2
_DIGITS = 12


class Entry:
    """A model in the cache; not removed before `release`, or the end of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            os.utime(path)  # the newest are kept
        except OSError:
            self.release()
            raise

    def release(self) -> None:
        """It is not used any more."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class Cache:
    """The cache of one job, for who holds its lock."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @contextmanager
    def locked(self, progress: Progress) -> Generator[None]:
        """Be the only one who fetches, for a block.

        Raises:
            GivenUp: nobody wants it any more.
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
        """The entry of this name and version."""
        path = self._path(name, version)
        return Entry(path) if path.is_dir() else None

    def draft(self) -> Path:
        """An empty directory to fetch into."""
        self._new.mkdir()
        return self._new

    def add(self, directory: Path, name: str, version: str) -> Entry:
        """Make a complete directory below the draft an entry; the draft is gone then, and entries that nobody needs."""
        for file in (directory, *directory.rglob("*")):
            _flush(file)  # a machine that loses power must not keep the name without the content
        entry = Entry(directory.rename(self._path(name, version)))
        _flush(self._directory)
        self._clear()
        self._prune()
        return entry

    def _prune(self) -> None:
        entries = [path for path in self._directory.iterdir() if path.is_dir() and not path.name.startswith(".")]
        entries.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in entries[_KEPT:]:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _locked(descriptor, fcntl.LOCK_EX):
                    path.rename(self._new)  # half of it must not be found
                    self._clear()
            finally:
                os.close(descriptor)

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
