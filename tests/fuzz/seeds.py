"""Writes the first inputs of the corpus, from our own encoders: `python -m fuzz.seeds`, in tests/."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.result import encode_result as encode_original_result
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.client.wire.values import encode_record
from fuzz.targets import PREFIX, SEPARATOR

CORPUS = Path(__file__).with_name("corpus")

_SPARSE = [np.array([[0, 1], [1, 0]]), np.array([1.0, 2.0], np.float32), np.array([2, 2])]
_ARRAYS = [
    np.float32(1),
    np.arange(4, dtype=np.float32).reshape(1, 2, 2),
    np.zeros((0, 3), np.int8),
    np.array([-1], np.int64),
    np.array([1, 2], np.float16),
]
_JSON = (
    '{"instances": [{"x": [1.0, 2]}]}',
    '{"instances": [{"x": {"shape": [2, 2], "data": [1], "indices": [[0, 1]]}}]}',
    '{"instances": [{"x": {"b64": "/9j/4AAQ"}, "y": [["a"], ["b"]]}]}',
    '{"instances": [{"x": 1e400, "y": [[[[]]]]}]}',
)


def inputs() -> Iterator[tuple[str, bytes]]:
    """For each target its first inputs."""
    for array in _ARRAYS:
        yield "native_tensor", encode_tensor(np.asarray(array))
    yield from _results()
    for record in _records():
        yield "original_record", base64.b64decode(record)
        yield "entry", _joined([b"uri", b"u", b"data", record])
    for text in _JSON:
        yield "json_record", text.encode()
        yield "entry", _joined([b"uri", b"u", b"data", text.encode(), b"serde", b"stream"])
    for content in _images():
        yield "image", content
        yield "entry", _joined([b"uri", b"u", b"image:x", content])
    for value in (*_ARRAYS[:2], _SPARSE, {"string": "a"}, ["a", "b"], np.array([True, False])):
        fields = [*encode_record("u", {"x": value}), b"reply", PREFIX + b"c", b"deadline", b"1000"]
        yield "entry", _joined(fields)
    yield "entry", _joined(encode_record("u", {"x": np.zeros(2, np.float32), "y": np.int64(3)}))


def _results() -> Iterator[tuple[str, bytes]]:
    tensor, receipt = encode_tensor(np.zeros(2)), json.dumps({"outputs": ["b", "a"]}).encode()
    yield "native_result", _joined([b"tensor:a", tensor, b"bool:b", tensor, b"receipt", receipt])
    yield "native_result", _joined([b"string:a", b'["x"]', b"value", b"[[1, 0.5]]"])
    yield "native_result", _joined([b"error", b'{"code": "c", "message": "m"}'])
    several: list[list[NDArray[Any]]] = [[np.zeros((2, 3))], [np.ones(4), np.array([[7.0]])]]
    for outputs in several:
        yield "original_result", base64.b64decode(encode_original_result(outputs))
    yield "original_result", b"[[1,0.5][2,0.25]]"
    yield "original_result", b"NaN"


def _records() -> Iterator[bytes]:
    image = base64.b64encode(next(_images())).decode()
    values: tuple[dict[str, Any], ...] = (
        {"x": np.zeros((1, 2), np.float32), "y": 3},
        {"x": _SPARSE},
        {"x": ["a", "b"]},
        {"x": {"b64": image}},
    )
    for value in values:
        yield encode_original(value).encode()
    for column in (pa.array([1, 2]), pa.array([b"a"]), pa.array([{"data": ["a"], "shape": [1]}])):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pa.schema([("x", column.type)])) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays([column], names=["x"]))
        yield base64.b64encode(sink.getvalue().to_pybytes())


def _images() -> Iterator[bytes]:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for extension in (".png", ".jpg", ".webp", ".bmp", ".gif", ".tiff", ".ppm", ".ras", ".hdr", ".avif"):
        image = pixels.astype(np.float32) if extension == ".hdr" else pixels
        if cv2.haveImageWriter(f"x{extension}"):
            yield cv2.imencode(extension, image)[1].tobytes()
    yield cv2.imencode(".jp2", np.zeros((32, 32), np.uint8))[1].tobytes()  # a smaller one cannot be written
    yield cv2.imencode(".png", pixels.astype(np.uint16) * 257)[1].tobytes()


def _joined(fields: Sequence[bytes]) -> bytes:
    return SEPARATOR.join(fields)


def main() -> None:
    """Write those that are not there."""
    for target, content in inputs():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hashlib.sha1(content, usedforsecurity=False).hexdigest()[:16]).write_bytes(content)


if __name__ == "__main__":
    main()
