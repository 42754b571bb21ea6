"""Safe unpacking of archives: no file lands outside of the directory, and the content stays within the limits.

.tar   .tar.gz .tgz   .tar.bz2   .tar.xz   .tar.zst   .zip         recognized by the first bytes, not by the name
"""

import bz2
import gzip
import lzma
import os
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from cluster_serving.node.fetching.errors import FetchError
from cluster_serving.node.fetching.progress import GivenUp, Progress, readable

_MOST_MEMBERS = 100_000
_TAR_HEADER = 512  # bytes
_LONGEST_HEADER = 1 << 20  # tarfile reads a member's header into memory, with any length that the header claims
_LONGEST_LIST = 32 << 20  # zipfile reads the list of all members of a .zip at once


def unpack(archive: Path, directory: Path, max_bytes: int, progress: Progress) -> None:
    """Unpack an archive into a new directory.

    Refused are: members other than files, directories and links, absolute paths, `..`, paths through a link, sparse files, more
    than `max_bytes` of content, and more than 100,000 members. `check_links` checks that links stay inside.

    Raises:
        FetchError: the archive is refused or broken, or the file is no archive.
    """
    opener = _opener(archive)
    directory.mkdir()
    allowance = _Allowance(max_bytes, progress)
    try:
        if opener is None:
            _unpack_zip(archive, directory, allowance)
        else:
            with opener(archive) as stream:
                _unpack_tar(stream, directory, allowance)
    except (FetchError, GivenUp):
        raise
    except Exception as error:  # the readers raise errors of any kind for a broken archive
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise FetchError(f"is a broken archive: {str(error) or type(error).__name__}") from error


def check_links(directory: Path) -> None:
    """Check that every link in a directory stays inside the directory, by asking the kernel.

    Raises:
        FetchError: a link leads out of the directory, or nowhere.
    """
    resolved = directory.resolve()
    for path in directory.rglob("*"):
        # Checked only after a folder around all files has been left out, because `..` leads elsewhere then.
        if not path.is_symlink():
            continue
        try:
            inside = Path(os.path.realpath(path, strict=True)).is_relative_to(resolved)
        except OSError:  # a link to nothing, to itself, or over too many steps
            inside = False
        if not inside:
            raise FetchError(f"is refused: {path.name!r} is a link that leads out of the model's directory, or nowhere")


class _Allowance:
    """Limits on the content of an archive."""

    def __init__(self, max_bytes: int, progress: Progress) -> None:
        self._max_bytes = max_bytes
        self._progress = progress
        self._members = self._bytes = 0

    def take(self, name: str, size_bytes: int) -> None:
        """Count a member, and check its path.

        Raises:
            FetchError: there are too many members, the content is too large, or the path leads out of the directory.
        """
        self._members += 1
        self._bytes += size_bytes
        path = PurePosixPath(name)
        if size_bytes < 0:
            raise FetchError(f"is a broken archive: {name!r} has {size_bytes} bytes")
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise FetchError(f"is refused: it would write outside of the model's directory, to {name!r}")
        if self._members > _MOST_MEMBERS:
            raise FetchError(f"is refused: it holds more than {_MOST_MEMBERS} files")
        if self._bytes > self._max_bytes:
            raise FetchError(f"is refused: unpacked it is larger than modelMaxBytes, {readable(self._max_bytes)}")
        self._progress.advance(self._bytes, self._max_bytes, f"unpacking {path.name!a}, of at most")


def _unpack_tar(stream: IO[bytes], directory: Path, allowance: _Allowance) -> None:
    with _opened_tar(stream) as tar:
        for member in tar:
            allowance.take(member.name, member.size)
            if member.issparse():  # the written size is known only from the map of the sparse file
                raise FetchError(f"is refused: {member.name!r} is sparse; pack it with tar without -S")
            _check_way(directory, member.name)
            if member.islnk():
                _check_way(directory, member.linkname)
            try:
                tar.extract(member, directory, filter="data")
            except _tarfile().FilterError as error:
                raise FetchError(f"is refused: {error}") from error


def _opened_tar(stream: IO[bytes]) -> Any:
    try:
        return _tarfile().open(fileobj=_bounded(stream, _LONGEST_HEADER), mode="r:")
    except _tarfile().ReadError as error:
        stream.seek(0)
        if _is_tar(stream.read(_TAR_HEADER)):
            raise
        raise FetchError("is compressed, but holds no .tar: give the model itself, or a .tar of it") from error


def _tarfile() -> Any:
    return tarfile if hasattr(tarfile, "data_filter") else import_module("backports.tarfile")  # before Python 3.11.4


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _check_way(directory: Path, name: str) -> None:
    """Refuse a member that would be written through a link, or linked to a link, wherever the link leads.

    Without the check, a chain of links led out of the directory, because the chain was too long for `tarfile.data_filter` to
    follow: CVE-2025-4517, fixed in Python from 3.11.13 and 3.12.11 on.
    """
    path = PurePosixPath(name)
    if any((directory / step).is_symlink() for step in (path, *path.parents)):
        raise FetchError(f"is refused: {name!r} goes through a link")


class _Bounded:
    """Stream that refuses to read a large piece at once: only headers are read in a single piece."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self._most = most
        self.seek = stream.seek
        self.tell = stream.tell
        self.seekable = stream.seekable

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes.

        Raises:
            FetchError: the size is above the limit for a header.
        """
        if size > self._most:
            raise FetchError(f"is refused: a header has {size} bytes")
        return self._stream.read(size if size >= 0 else self._most)


def _bounded(stream: IO[bytes], most: int) -> IO[bytes]:
    return cast("IO[bytes]", _Bounded(stream, most))


def _unpack_zip(archive: Path, directory: Path, allowance: _Allowance) -> None:
    with archive.open("rb") as stream, zipfile.ZipFile(_bounded(stream, _LONGEST_LIST)) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise FetchError(f"is refused: {member.filename!r} is a link or a device")
            if member.flag_bits & 1:
                raise FetchError("is refused: it is encrypted")
            allowance.take(member.filename, member.file_size)  # zipfile reads no more than this size
            opened.extract(member, directory)


def _opener(archive: Path) -> Callable[[Path], Any] | None:
    """Return the function that opens the tar in an archive. None: the archive is a zip.

    Raises:
        FetchError: the file is no archive.
    """
    with archive.open("rb") as stream:
        head = stream.read(_TAR_HEADER)
    for magic, opener in _OPENERS.items():
        if head.startswith(magic):
            return opener
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None
    if _is_tar(head):
        return lambda path: path.open("rb")
    raise FetchError("is neither a model file nor an archive (.tar, .tar.gz, .tar.bz2, .tar.xz, .tar.zst, .zip)")


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


_OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\0": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda path: _zstd().ZstdFile(path),
}
