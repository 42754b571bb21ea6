"""Fingerprint of a model, computed from the files alone: the same model has the same fingerprint on every machine.

    fingerprint = first 16 hex digits of SHA-256 over, for each file in the order of the names,
                  | name, relative to the model's directory | 00 | SHA-256 of the content, 32 bytes |

An encrypted model is hashed as its files lie on disk. Encrypting the model again changes the fingerprint.
"""

import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import SAVED_MODEL, Detected

_DIGITS = 16
_PROCESS_BYTES = 128 << 20  # of a worker without its model: interpreter, runtime and a small ring
_FILES_OF_SAVED_MODEL = (*SAVED_MODEL, "fingerprint.pb", "keras_metadata.pb")
_DIRECTORIES_OF_SAVED_MODEL = ("variables", "assets", "assets.extra")
# An entry of a tensor's `external_data` in ONNX (onnx.proto, StringStringEntryProto): the key `location` and a file's name.
_LOCATION = re.compile(rb"\x0a\x08location\x12(?:([\x01-\x7f])|([\x80-\xff])([\x01-\x1f]))")


def fingerprint(model: Detected) -> str:
    """Return the hash of a model's content: `sha256:` and 16 hex digits.

    The hash changes with every byte and every name of the model's files. Moving the directory, or adding unrelated files to the
    directory, does not change the hash. For a Python model, the modules beside the file count, and so do the files beside it that
    its code names.

    Raises:
        ModelError: a file cannot be read.
    """
    root = _root(model)
    total = hashlib.sha256()
    try:
        for name, file in sorted((file.relative_to(root).as_posix(), file) for file in set(_files(model, root))):
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256")
            total.update(name.encode(errors="surrogateescape") + b"\0" + content.digest())
    except OSError as error:
        raise ModelError(f"{error.filename or root} cannot be read: {error.strerror}") from error
    return f"sha256:{total.hexdigest()[:_DIGITS]}"


def size(model: Detected) -> int:
    """Return the bytes of a model's files, or 0 when a file cannot be read. A worker says why, as soon as it loads the model."""
    try:
        return sum(file.stat().st_size for file in set(_files(model, _root(model))))
    except OSError:
        return 0


def copy_bytes(model_bytes: int) -> int:
    """Return the bytes of memory that a worker with a model of `model_bytes` takes, as far as the files tell."""
    return _PROCESS_BYTES + model_bytes


def _root(model: Detected) -> Path:
    return model.definition if model.definition.is_dir() else model.definition.parent


def _files(model: Detected, root: Path) -> Iterator[Path]:
    definition = model.definition
    if model.format == "tensorflowSavedModel":
        yield from (root / name for name in _FILES_OF_SAVED_MODEL if (root / name).is_file())
        for name in _DIRECTORIES_OF_SAVED_MODEL:
            yield from (file for file in (root / name).rglob("*") if file.is_file())
        return
    yield definition
    if model.weights is not None:
        yield model.weights
    match model.format:
        case "tensorflowCheckpoint":
            yield from (file for file in root.iterdir() if file.name.startswith(f"{definition.stem}.data-"))
        case "tensorflowFrozenModel":
            yield from (file for file in [root / "graph_meta.json"] if file.is_file())
        case "onnx":
            yield from _external_data(definition)
        case "python":
            source = definition.read_bytes()
            yield from (file for file in _beside(root) if file.suffix == ".py" or file.name.encode() in source)
        case "pytorch":  # a pickle needs the modules of its classes
            yield from (file for file in _beside(root) if file.suffix == ".py")
        case _:
            pass


def _beside(root: Path) -> Iterator[Path]:
    return (file for file in root.iterdir() if file.is_file() and not file.name.startswith("."))


def _external_data(definition: Path) -> Iterator[Path]:
    """Yield the files in which an ONNX model keeps its large tensors."""
    if definition.stat().st_size == 0:
        return  # an empty file cannot be mapped
    names: set[str] = set()
    with definition.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for match in _LOCATION.finditer(content):
            short, low, high = match.groups()
            length = short[0] if short else (low[0] & 0x7F) | high[0] << 7
            names.add(content[match.end() : match.end() + length].decode(errors="replace"))
    for name in names:
        location = PurePosixPath(name)
        file = definition.parent / location
        # ONNX Runtime reads external data only from the model's directory. A match that names no file there is no location.
        if name and not location.is_absolute() and ".." not in location.parts and os.path.isfile(file):  # noqa: PTH113 - no error
            yield file
