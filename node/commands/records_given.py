"""Records of `predict` and `bench`: from words of the command line and from standard input to inputs of a model.

    x.jpg, x.png, ...       encoded image
    x.npy                   array, of its own dtype
    x.npz                   array for each input, by name
    x.json, x.jsonl         JSON value, or a JSON value a line
    photos/                 folder of images
    {"x": ...}, [...]       JSON
    -                       the same kinds, from standard input. Lines are read one by one, as they come

The content tells the kind. A record is a value for each input, by name, or one value without a name. A value is JSON as in the body
of a request to a frontend, an array, or the bytes of an image. A text for an input of numbers is the path of an image.
"""

import base64
import json
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from cluster_serving.client.errors import CodecError
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import bind
from cluster_serving.client.wire.original.values import is_image
from cluster_serving.client.wire.tensors import Array
from cluster_serving.node.engines.calibration import image_files

_NPY, _NPZ = b"\x93NUMPY", b"PK"
_STDIN = "-"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".json", ".jsonl")
_HEAD = 16  # bytes that tell the kind of a content
_KINDS = "an image, .npy, .npz or JSON"


class BadRecord(Fault):
    """The command line has no record, or a record that cannot be read or that the model does not take."""

    exit_code = ExitCode.USAGE


class Record(NamedTuple):
    """Record to send: name for people, and the value of each input by name, or one value."""

    name: str
    value: Any


def job_and_records(job: str | None, words: Sequence[str], least: int = 0) -> tuple[str | None, Sequence[str]]:
    """Return the job and the records of a command line.

    Without a job, the first word is the job, unless it is a record, or one of the `least` records that the command needs.
    """
    if job is None and len(words) > least and not _is_record(words[0]):
        return words[0], words[1:]
    return job, words


def records(words: Sequence[str]) -> Iterator[Record]:
    """Yield the records of the command line, each when it is asked for.

    Raises:
        BadRecord: a file or a text holds no record.
    """
    for number, word in enumerate(words, 1):
        if word == _STDIN:
            yield from _of_stream(sys.stdin.buffer)
        elif word.startswith(("{", "[")):
            yield Record(f"record {number}", _json(word, f"record {number}"))
        elif Path(word).is_dir():
            images = image_files(Path(word))
            if not images:
                raise BadRecord(f"{word} has no images")
            for image in images:
                yield from _of_file(str(image))
        else:
            yield from _of_file(word)


def client_inputs(record: Record, inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return a record as the inputs of `InputQueue.predict`. Numbers of JSON get the dtype of their input, float32 if unknown.

    Args:
        record: the record.
        inputs: inputs of the model. Empty: not known.

    Raises:
        BadRecord: the record has one value without a name for several inputs, other names than the model, or a value that the
            dtype cannot hold.
    """
    found: dict[str, Any] = {}
    for name, spec, value in _bound(record, inputs):
        try:
            found[name] = _client_value(value, spec)
        except (CodecError, ValueError, OverflowError) as error:
            raise BadRecord(f"{record.name}: input {name!r}: {error}") from error
    return found


def json_instance(record: Record, inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return a record as an instance of a request to a frontend.

    Args:
        record: the record.
        inputs: inputs of the model. Empty: not known.

    Raises:
        BadRecord: the record has one value without a name for several inputs, or other names than the model.
    """
    return {name: _json_value(value, spec) for name, spec, value in _bound(record, inputs)}


def _is_record(word: str) -> bool:
    """Return whether a word of the command line is a record by its form, and no name of a job."""
    path = Path(word)
    is_folder = "/" in word and path.is_dir()  # a bare name may be that of a job and of a folder
    return word == _STDIN or word.startswith(("{", "[")) or word.endswith(_SUFFIXES) or path.is_file() or is_folder


def _of_file(name: str) -> Iterator[Record]:
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        raise BadRecord(f"{name} cannot be read: {error.strerror}; a record is a file, a folder, JSON or -") from error
    yield from _of_content(content, name)


def _of_stream(stream: BinaryIO) -> Iterator[Record]:
    first = stream.readline()
    if _is_binary(first):
        yield from _of_content(first + stream.read(), "standard input")
        return
    number = 0
    while first:
        number += 1
        if first.strip():
            yield Record(f"line {number}", _json(first, f"line {number}"))
        first = stream.readline()


def _of_content(content: bytes, name: str) -> Iterator[Record]:
    if is_image(content[:_HEAD]):
        yield Record(name, content)
    elif _is_binary(content):
        yield Record(name, _arrays(content, name))
    else:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            lines = [(at, line) for at, line in enumerate(content.splitlines(), 1) if line.strip()]
            if len(lines) < 2:
                raise BadRecord(f"{name} is not {_KINDS}") from None
            for at, line in lines:
                yield Record(f"{name}:{at}", _json(line, f"{name}:{at}"))
        else:
            yield Record(name, value)


def _is_binary(content: bytes) -> bool:
    return content.startswith((_NPY, _NPZ)) or is_image(content[:_HEAD])


def _arrays(content: bytes, name: str) -> Array | dict[str, Array]:
    try:
        loaded = np.load(BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return cast(Array, loaded)
        return {each: loaded[each] for each in loaded.files}
    except (ValueError, EOFError, OSError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BadRecord(f"{name} is a broken file of arrays: {error}") from error


def _json(text: str | bytes, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"{name} is not JSON: {error}") from error


def _bound(record: Record, inputs: Sequence[TensorSpec]) -> Iterator[tuple[str, TensorSpec | None, Any]]:
    """Yield the name, the input of the model, if known, and the value of each input of a record."""
    if not isinstance(record.value, dict):
        if len(inputs) > 1:
            takes = ", ".join(spec.describe() for spec in inputs)
            raise BadRecord(
                f"{record.name} is one value, and the model takes {takes}: give JSON or .npz with the names"
            )
        yield inputs[0].name if inputs else "t", inputs[0] if inputs else None, record.value
        return
    values = cast("dict[str, Any]", record.value)
    names = tuple(values)
    specs: dict[str, TensorSpec] = {}
    if inputs:
        try:
            places, _ = bind(names, inputs)
        except CodecError as error:
            raise BadRecord(f"{record.name}: {error}") from error
        specs = {names[place]: spec for place, spec in zip(places, inputs, strict=True)}
    for name, value in values.items():
        yield name, specs.get(name), value


def _client_value(value: Any, spec: TensorSpec | None) -> Any:
    match value:
        case np.ndarray() | bytes():
            return value
        case str():
            is_path = not spec.is_text if spec is not None else Path(value).is_file()
            return {"path" if is_path else "string": value}
        case {"shape": shape, "data": data, "indices": indices}:
            return [np.asarray(indices).T, _numbers(data, spec), np.asarray(shape)]
        case dict():
            return value
        case list() | None if spec is not None and spec.is_nested:
            return {"sequence": None if value is None else [np.asarray(item) for item in value]}
        case _:
            return _numbers(value, spec)


def _numbers(value: Any, spec: TensorSpec | None) -> Any:
    """Return numbers of JSON as an array, and any other value unchanged. Whole numbers round in a float, as in a frontend."""
    found = np.asarray(value)
    if found.dtype.kind not in "iufb":
        return value
    if spec is None:
        return found if found.dtype.kind == "b" else found.astype(np.float32)
    if spec.is_text:
        return found
    if found.dtype.kind in "iu" and np.dtype(spec.dtype).kind == "f":
        found = found.astype(np.float64)
    return spec.converted(found)


def _json_value(value: Any, spec: TensorSpec | None) -> Any:
    match value:
        case np.ndarray():
            return cast(Array, value).tolist()
        case bytes():
            return {"b64": base64.b64encode(value).decode()}
        case str() if (spec is None or not spec.is_text) and Path(value).is_file():
            return {"b64": base64.b64encode(Path(value).read_bytes()).decode()}
        case {"path": str() as path}:
            return {"b64": base64.b64encode(Path(path).read_bytes()).decode()}
        case _:
            return value
