"""Fetch of a model from a URL into the cache, unless the cache has the model already."""

import errno
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from cluster_serving.client.servers.config.values import mask_address
from cluster_serving.client.servers.process.backoff import Backoff
from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.node.fetching.cache import Cache, Entry
from cluster_serving.node.fetching.errors import ChangedError, FetchError
from cluster_serving.node.fetching.installed import check_can_fetch
from cluster_serving.node.fetching.progress import GivenUp, Progress, readable
from cluster_serving.node.fetching.source import Part, RemoteModel, find
from cluster_serving.node.models.detect import FORMATS

_ATTEMPTS = 3
_MODEL_FILES = {suffix for kind in FORMATS.values() for suffix in kind.definition}


@dataclass(frozen=True)
class Request:
    """Request for a model.

    Attributes:
        url: `http://`, `https://` or `s3://`, of an archive, of a model file, or of a prefix on S3.
        checksum: `sha256:` and 64 hex digits. Empty: any content is accepted.
        directory: cache of the job.
        max_bytes: limit of the fetched bytes, and of the unpacked bytes.
    """

    url: str
    checksum: str
    directory: Path
    max_bytes: int


def fetch(request: Request, progress: Progress) -> Entry:
    """Fetch the model of a URL to this machine.

    With a checksum, the cache is searched first, without a request to the server. Without a checksum, the server is asked for
    the version first.

    Returns:
        The cache entry of the model.

    Raises:
        ModelFault: the model cannot be fetched. The message is a full sentence.
        GivenUp: the fetch was given up.
    """
    shown = mask_address(request.url)
    check_can_fetch(request.url)
    try:
        for _ in range(_ATTEMPTS - 1):
            with suppress(ChangedError):
                return _fetch(request, progress, shown)
        return _fetch(request, progress, shown)
    except FetchError as error:
        raise ModelFault(_printable(f"{shown} {error}")) from error
    except OSError as error:
        place = error.filename or request.directory
        room = "; make room, or set modelCache" if error.errno in {errno.ENOSPC, errno.EDQUOT} else ""
        raise ModelFault(_printable(f"{shown} cannot be kept in {place}: {error.strerror}{room}")) from error
    except GivenUp:
        raise
    except Exception as error:  # an error of a library must not end a node that serves
        raise ModelFault(_printable(f"{shown} cannot be fetched: {type(error).__name__}: {error}")) from error


def _printable(text: str) -> str:
    """Escape the names in an archive: names may hold line breaks, terminal commands, and bytes that are no UTF-8."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _fetch(request: Request, progress: Progress, shown: str) -> Entry:
    cache = Cache(request.directory)
    place = urlsplit(request.url)
    address = (
        f"{place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}"  # a signature changes, the file does not
    )
    name = PurePosixPath(unquote(place.path)).name or place.netloc
    with cache.locked(progress):
        version = f"{address}\n{request.checksum}" if request.checksum else ""
        if version and (entry := cache.find(name, version)):
            return entry
        found = find(request.url)
        if found.version and not version:
            version = f"{address}\n{found.version}"
            if entry := cache.find(name, version):
                return entry
        if found.size_bytes > request.max_bytes:
            limit = readable(request.max_bytes)
            raise FetchError(f"is refused: it has {readable(found.size_bytes)}, and modelMaxBytes is {limit}")
        progress.say(f"fetching {shown}, {readable(found.size_bytes)}")
        draft = cache.draft()
        digest = _download(found, draft / "fetched", progress)
        if found.folder and find(request.url).version != found.version:  # listed in the middle of an upload
            raise ChangedError
        if request.checksum and request.checksum != f"sha256:{digest}":
            raise FetchError(f"is not what modelChecksum says: it is sha256:{digest}, and should be {request.checksum}")
        if not version and (entry := cache.find(name, digest)):
            return entry
        return cache.add(_model(found, draft, request.max_bytes, progress), name, version or digest)


def _download(found: RemoteModel, directory: Path, progress: Progress) -> str:
    """Fetch every part into a new directory, and return the SHA-256 of the file.

    For a folder, return the SHA-256 of the lines that `sha256sum` prints for the files.
    """
    directory.mkdir()
    done = 0
    lines: list[str] = []
    digest = ""
    for part in found.parts:
        file = directory / part.name
        file.parent.mkdir(parents=True, exist_ok=True)

        def advance(size: int, before: int = done) -> None:
            progress.advance(before + size, found.size_bytes, "fetched")

        digest = _save(part, file, advance, progress)
        lines.append(f"{digest}  {part.name}\n")
        done += part.size_bytes
    return hashlib.sha256("".join(lines).encode()).hexdigest() if found.folder else digest


def _save(part: Part, file: Path, advance: Callable[[int], None], progress: Progress) -> str:
    """Write a part into a file, and return the part's SHA-256."""
    backoff = Backoff(0.5)
    for attempt in range(_ATTEMPTS):
        if attempt:  # obstore itself resumes only if the server tells a version
            progress.pause(backoff.next_s())
        digest = hashlib.sha256()
        size = 0
        try:
            with file.open("wb") as stream:
                for chunk in part.read():
                    stream.write(chunk)
                    digest.update(chunk)
                    size += len(chunk)
                    advance(size)
            return digest.hexdigest()
        except ChangedError:
            raise
        except FetchError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("not reached")


def _model(found: RemoteModel, draft: Path, max_bytes: int, progress: Progress) -> Path:
    """Return the directory of the fetched model, unpacked from an archive. A folder around all files is left out."""
    fetched = draft / "fetched"
    file = fetched / found.parts[0].name
    if found.folder or file.suffix.lower() in _MODEL_FILES:
        return fetched
    from cluster_serving.node.fetching.unpack import check_links, unpack

    model = draft / "model"
    unpack(file, model, max_bytes, progress)
    while True:
        inside = [path for path in model.iterdir() if path.name != "__MACOSX" and not path.name.startswith(".")]
        if len(inside) != 1 or not inside[0].is_dir() or inside[0].is_symlink():
            break
        model = inside[0]
    check_links(model)
    return model
