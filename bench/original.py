"""The original's dialect beside Arrow built of Python objects: microseconds a record, of the client and of the node.

Run it by `python -m bench.original [--json FILE]`. Less than 5 times as fast, in either part and for either size, fails.

    part     ours                                   objects
    client   encode a record, decode a result       a dict for each row, and a list of the shape's rows, as the original's client
    node     decode a record, encode a result       rows to dicts and lists, and lists to columns
"""

import argparse
import base64
import sys
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench import report
from cluster_serving.client.wire.original.decode import decode_record
from cluster_serving.client.wire.original.encode import encode_record
from cluster_serving.client.wire.original.result import encode_result, get_ndarray_from_b64

_LEAST = 5
_SHAPES = {"128": (128,), "3x224x224": (3, 224, 224)}
_OUTPUT = (1000,)
_LISTS = {"indiceData": pa.int32(), "indiceShape": pa.int32(), "data": pa.float32(), "shape": pa.int32()}
_TENSOR = pa.struct([(name, pa.list_(kind)) for name, kind in _LISTS.items()])
_RESULT = pa.schema([("data", pa.float32()), ("shape", pa.int32())])
_Floats = NDArray[np.float32]
_Calls = tuple[Callable[[], object], ...]


def main() -> None:
    """Measure, print a table, write the figures where they are wanted, and judge."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = [_round() for _ in range(options.rounds)]
    report.show("The original's dialect", rounds)
    report.write(options.json, rounds)
    ratios = {name: value for name, value in report.medians(rounds).items() if name.endswith("ratio")}
    slow = [f"{name} is {value:.1f}" for name, value in ratios.items() if value < _LEAST]
    sys.exit(f"less than {_LEAST}: {', '.join(slow)}" if slow else 0)


def _round() -> report.Figures:
    figures: report.Figures = {}
    output = np.random.default_rng(1).random(_OUTPUT, np.float32)
    value = encode_result([output])
    assert np.array_equal(_decode_result_by_objects(value), get_ndarray_from_b64(value))
    assert np.array_equal(get_ndarray_from_b64(_encode_result_by_objects(output)), output)
    for label, shape in _SHAPES.items():
        array = np.random.default_rng(2).random(shape, np.float32)
        record = encode_record({"t": array})
        [(_, decoded)] = decode_record(_encode_by_objects(array))
        assert np.array_equal(_decode_by_objects(record), array)
        assert np.array_equal(decoded[0], array)
        ours: dict[str, _Calls] = {
            "client": (partial(encode_record, {"t": array}), partial(get_ndarray_from_b64, value)),
            "node": (partial(decode_record, record), partial(encode_result, [output])),
        }
        objects: dict[str, _Calls] = {
            "client": (partial(_encode_by_objects, array), partial(_decode_result_by_objects, value)),
            "node": (partial(_decode_by_objects, record), partial(_encode_result_by_objects, output)),
        }
        for part in ours:
            name = f"{part}.{label}"
            figures[f"{name}.us"] = sum(map(_microseconds, ours[part]))
            figures[f"{name}.objects_us"] = sum(map(_microseconds, objects[part]))
            figures[f"{name}.ratio"] = figures[f"{name}.objects_us"] / figures[f"{name}.us"]
    return figures


def _encode_by_objects(array: _Floats) -> bytes:
    rows: list[dict[str, Any]] = [
        {"indiceData": []},
        {"indiceShape": []},
        {"data": array.flatten()},
        {"shape": np.array(array.shape)},
    ]
    return _stream(pa.RecordBatch.from_arrays([pa.array(rows, _TENSOR)], names=["t"]))


def _decode_by_objects(record: str) -> _Floats:
    batch = pa.ipc.open_stream(base64.b64decode(record)).read_next_batch()
    rows = batch.column(0).to_pylist()
    return np.array(rows[2]["data"], np.float32).reshape(rows[3]["shape"])


def _encode_result_by_objects(output: _Floats) -> bytes:
    shape = [*output.shape, *[None] * (output.size - output.ndim)]
    columns = [pa.array(output.ravel().tolist(), pa.float32()), pa.array(shape, pa.int32())]
    return _stream(pa.RecordBatch.from_arrays(columns, schema=_RESULT))


def _decode_result_by_objects(value: bytes) -> _Floats:
    batch = pa.ipc.open_stream(base64.b64decode(value)).read_next_batch()
    numbers: _Floats = batch[0].to_numpy()
    return numbers.reshape([size for size in batch[1].to_pylist() if size])


def _stream(batch: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes())


def _microseconds(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    number, seconds = timer.autorange()
    return min(seconds, *timer.repeat(2, number)) / number * 1e6


if __name__ == "__main__":
    main()
