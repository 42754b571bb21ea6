"""Takes an archive apart, or refuses it: nothing lands outside of the directory, and no more than was allowed for.

.tar   .tar.gz .tgz   .tar.bz2   .tar.xz   .tar.zst   .zip         told by the first bytes, not by the name
"""

import bz2
import gzip
import lzma
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from cluster_serving.node.fetching.errors import FetchError
from cluster_serving.node.fetching.progress import Progress, readable

_MOST_MEMBERS = 100_000
_LONGEST_HEADER = 1 << 20  # tarfile reads the header of a member into memory, however long it says that it is
_CHUNK_BYTES = 1 << 20
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, ValueError)


def unpack(archive: Path, directory: Path, max_bytes: int, progress: Progress) -> None:
    """Unpack an archive into a new directory.

    Links, and whatever is no file and no directory, are refused when they lead outside or are none (`tarfile.data_filter`); so
    are absolute paths, `..`, more than `max_bytes` of content, and more than 100,000 members.

    Raises:
        FetchError: it is refused, broken, or no archive.
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
    except (*_BROKEN, _zstd().ZstdError) as error:
        raise FetchError(f"is a broken archive: {str(error) or type(error).__name__}") from error


class _Allowance:
    """What may still be unpacked."""

    def __init__(self, max_bytes: int, progress: Progress) -> None:
        self._max_bytes = max_bytes
        self._progress = progress
        self._members = self._bytes = 0

    def take(self, name: str, size_bytes: int) -> None:
        """Let one member through.

        Raises:
            FetchError: it is one too many, too large, or its path leads elsewhere.
        """
        self._members += 1
        self._bytes += size_bytes
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise FetchError(f"is refused: it would write outside of the model's directory, to {name!r}")
        if self._members > _MOST_MEMBERS:
            raise FetchError(f"is refused: it holds more than {_MOST_MEMBERS} files")
        if self._bytes > self._max_bytes:
            raise FetchError(f"is refused: unpacked it is larger than modelMaxBytes, {readable(self._max_bytes)}")
        self._progress.advance(self._bytes, self._max_bytes, f"unpacking {path.name}, of at most")


def _unpack_tar(stream: IO[bytes], directory: Path, allowance: _Allowance) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise FetchError(
            f"cannot be unpacked safely by Python {sys.version.split()[0]}: take 3.11.4 or newer, or a .zip"
        )
    bounded = cast("IO[bytes]", _ShortHeaders(stream))
    with tarfile.open(fileobj=bounded, mode="r:") as tar:
        for member in tar:
            allowance.take(member.name, member.size)
            try:
                tar.extract(member, directory, filter="data")
            except tarfile.FilterError as error:
                raise FetchError(f"is refused: {error}") from error


class _ShortHeaders:
    """A stream that is never read in one large piece: only headers are."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        """Read so many bytes.

        Raises:
            FetchError: more than a header has.
        """
        if not 0 <= size <= _LONGEST_HEADER:
            raise FetchError(f"is refused: the header of a member has {size} bytes")
        return self._stream.read(size)


def _unpack_zip(archive: Path, directory: Path, allowance: _Allowance) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise FetchError(f"is refused: {member.filename!r} is a link or a device")
            if member.flag_bits & 1:
                raise FetchError("is refused: it is encrypted")
            allowance.take(member.filename, member.file_size)  # no more is read than it says here
            opened.extract(member, directory)


def _opener(archive: Path) -> Callable[[Path], Any] | None:
    """How to read the tar in an archive; None: it is a zip.

    Raises:
        FetchError: it is no archive.
    """
    with archive.open("rb") as stream:
        head = stream.read(512)
    for magic, opener in _OPENERS.items():
        if head.startswith(magic):
            return opener
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None
    if head[257:262] == b"ustar":
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
