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
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np

from cluster_serving.client.errors import CodecError, InvalidValue
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import bind
from cluster_serving.client.wire.original.values import is_image
from cluster_serving.client.wire.tensors import Array, as_numbers
from cluster_serving.node.engines.calibration import BROKEN_FILE
from cluster_serving.node.models.calibration_data import image_files

_NPY, _NPZ = b"\x93NUMPY", b"PK"
_STDIN = "-"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".npy", ".npz", ".json", ".jsonl")
_HEAD = 16  # bytes that tell the kind of a content
_KINDS = "an image, .npy, .npz or JSON"
_MOST_SHOWN = 255  # characters of a name: file systems allow no longer one


class BadRecord(Fault):
    """The command line has no record, or a record that cannot be read or that the model does not take.

    The message is the `reason`, after the name of the record if there is one.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, reason: str, record: str = "") -> None:
        super().__init__(f"{record}: {reason}" if record else reason)
        self.reason = reason


class Record(NamedTuple):
    """Record to send.

    Attributes:
        name: name for people.
        value: value of each input by name, or one value.
        fault: reason that the record cannot be read. Empty: it is read.
    """

    name: str
    value: Any
    fault: str = ""


def job_and_records(job: str | None, words: Sequence[str], least: int = 0) -> tuple[str | None, Sequence[str]]:
    """Return the job and the records of a command line.

    Without a job, the first word is the job, unless it is a record, or one of the `least` records that the command needs.
    """
    if job is None and len(words) > least and not _is_record(words[0]):
        return words[0], words[1:]
    return job, words


def records(words: Sequence[str]) -> Iterator[Record]:
    """Yield the records of the command line, each when it is asked for. A file or text that holds no record has a `fault`."""
    for number, word in enumerate(words, 1):
        if word == _STDIN:
            yield from _of_stream(sys.stdin.buffer)
        elif word.startswith(("{", "[")):
            yield _of_json(word, f"record {number}")
        elif _is_folder(word):
            yield from _of_folder(word)
        else:
            yield from _of_file(word)


def client_inputs(record: Record, inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return a record as the inputs of `InputQueue.predict`. Numbers of JSON get the dtype of their input, float32 if unknown.

    Args:
        record: the record.
        inputs: inputs of the model. Empty: not known.

    Raises:
        BadRecord: the record cannot be read, has one value without a name for several inputs, other names than the model, or a
            value that the input does not take.
    """
    found: dict[str, Any] = {}
    for name, spec, value in _bound(record, inputs):
        try:
            found[name] = _client_value(name, value, spec)
        except (CodecError, InvalidValue) as error:  # names the input
            raise BadRecord(str(error), record.name) from error
        except (ValueError, OverflowError) as error:
            raise BadRecord(f"input {name!r}: {error}", record.name) from error
    return found


def json_instance(record: Record, inputs: Sequence[TensorSpec]) -> dict[str, Any]:
    """Return a record as an instance of a request to a frontend.

    Args:
        record: the record.
        inputs: inputs of the model. Empty: not known.

    Raises:
        BadRecord: the record cannot be read, has one value without a name for several inputs, other names than the model, or a
            value that JSON cannot hold.
    """
    found: dict[str, Any] = {}
    for name, spec, value in _bound(record, inputs):
        try:
            found[name] = _json_value(name, value, spec)
            json.dumps(found[name], allow_nan=False)
        except InvalidValue as error:
            raise BadRecord(str(error), record.name) from error
        except TypeError as error:
            raise BadRecord(f"input {name!r}: {error}", record.name) from error
        except ValueError as error:
            raise BadRecord(
                f"input {name!r}: JSON has neither NaN nor infinities: send the record over Redis", record.name
            ) from error
    return found


def _is_record(word: str) -> bool:
    """Return whether a word of the command line is a record by its form, and no name of a job."""
    is_folder = "/" in word and _is_folder(word)  # a bare name may be that of a job and of a folder
    return word == _STDIN or word.startswith(("{", "[")) or word.endswith(_SUFFIXES) or _is_file(word) or is_folder


def _is_file(text: str) -> bool:
    with suppress(OSError):  # too long for a path
        return Path(text).is_file()
    return False


def _is_folder(text: str) -> bool:
    with suppress(OSError):
        return Path(text).is_dir()
    return False


def _of_file(name: str) -> Iterator[Record]:
    try:
        content = Path(name).read_bytes()
    except OSError as error:
        fault = f"cannot be read: {error.strerror}; a record is a file, a folder, JSON or -"
        yield Record(_shown(name), None, fault)
        return
    yield from _of_content(content, name)


def _of_folder(name: str) -> Iterator[Record]:
    try:
        images = image_files(Path(name))
    except OSError as error:
        yield Record(name, None, f"cannot be read: {error.strerror}")
        return
    if not images:
        yield Record(name, None, "no images in it")
    for image in images:
        yield from _of_file(str(image))


def _of_stream(stream: BinaryIO) -> Iterator[Record]:
    first = stream.readline()
    if _is_binary(first):
        yield from _of_content(first + stream.read(), "standard input")
        return
    number = 0
    while first:
        number += 1
        if first.strip():
            yield _of_json(first, f"line {number}")
        first = stream.readline()


def _of_content(content: bytes, name: str) -> Iterator[Record]:
    if is_image(content[:_HEAD]):
        yield Record(name, content)
    elif _is_binary(content):
        yield _of_arrays(content, name)
    else:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            lines = [(at, line) for at, line in enumerate(content.splitlines(), 1) if line.strip()]
            if len(lines) < 2:
                yield Record(name, None, f"not {_KINDS}")
                return
            for at, line in lines:
                yield _of_json(line, f"{name}:{at}")
        else:
            yield Record(name, value)


def _is_binary(content: bytes) -> bool:
    return content.startswith((_NPY, _NPZ)) or is_image(content[:_HEAD])


def _of_arrays(content: bytes, name: str) -> Record:
    try:
        loaded = np.load(BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return Record(name, loaded)
        return Record(name, {each: loaded[each] for each in loaded.files})
    except BROKEN_FILE as error:
        return Record(name, None, f"a broken file of arrays: {error}")


def _of_json(text: str | bytes, name: str) -> Record:
    try:
        return Record(name, json.loads(text))
    except (ValueError, RecursionError) as error:
        return Record(name, None, f"not JSON: {error}")


def _bound(record: Record, inputs: Sequence[TensorSpec]) -> Iterator[tuple[str, TensorSpec | None, Any]]:
    """Yield the name, the input of the model, if known, and the value of each input of a record."""
    if record.fault:
        raise BadRecord(record.fault, record.name)
    if not isinstance(record.value, dict):
        if len(inputs) > 1:
            takes = ", ".join(spec.describe() for spec in inputs)
            raise BadRecord(f"one value, and the model takes {takes}: give JSON or .npz with the names", record.name)
        yield inputs[0].name if inputs else "t", inputs[0] if inputs else None, record.value
        return
    values = cast("dict[str, Any]", record.value)
    names = tuple(values)
    specs: dict[str, TensorSpec] = {}
    if inputs:
        try:
            places, _ = bind(names, inputs)
        except CodecError as error:
            raise BadRecord(str(error), record.name) from error
        specs = {names[place]: spec for place, spec in zip(places, inputs, strict=True)}
    for name, value in values.items():
        yield name, specs.get(name), value


def _client_value(name: str, value: Any, spec: TensorSpec | None) -> Any:
    match value:
        case np.ndarray() | bytes():
            return value
        case str() if spec.is_text if spec is not None else not _is_file(value):
            return {"string": value}
        case (str() as path) | {"path": str() as path}:
            return _image(name, path)
        case {"shape": shape, "data": data, "indices": indices}:
            return [np.asarray(indices).T, _numbers(data, spec), np.asarray(shape)]
        case dict():
            return value
        case list() | None if spec is not None and spec.is_nested:
            return {"sequence": None if value is None else [np.asarray(item) for item in value]}
        case _ if spec is not None and spec.is_nested:
            raise InvalidValue(f"input {name!r} takes {spec.dtype}, which is a list in JSON, not {value!r:.60}")
        case _:
            return _numbers(value, spec)


def _numbers(value: Any, spec: TensorSpec | None) -> Any:
    """Return numbers of JSON as an array, and any other value unchanged. Whole numbers round in a float, as in a frontend."""
    found = as_numbers(value)
    if found.dtype.kind not in "iufb":
        return value
    if spec is None:
        return found if found.dtype.kind == "b" else found.astype(np.float32)
    if spec.is_text:
        return found
    if found.dtype.kind in "iu" and np.dtype(spec.dtype).kind == "f":
        found = found.astype(np.float64)
    return spec.converted(found)


def _json_value(name: str, value: Any, spec: TensorSpec | None) -> Any:
    match value:
        case np.ndarray():
            return cast(Array, value).tolist()
        case bytes():
            return _base64(value)
        case str() as path if (spec is None or not spec.is_text) and _is_file(path):
            return _base64(_image(name, path))
        case {"path": str() as path}:
            return _base64(_image(name, path))
        case _:
            return value


def _base64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


def _image(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidValue(f"input {name!r}: cannot read the image {_shown(path)!r}: {reason}") from error


def _shown(text: str) -> str:
    """Return a text of the command line as messages show it: a text that was no path may be long."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:60]}..."
