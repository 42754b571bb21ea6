"""Microseconds to encode and to decode a tensor: our codec, Arrow's own functions on the same bytes, and the original dialect.

Run it by `python -m bench.codec [--json FILE]`.
"""

import argparse
import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench import report
from cluster_serving.client.wire import tensors as wire
from cluster_serving.client.wire.original.decode import decode_record as decode_original
from cluster_serving.client.wire.original.encode import encode_record as encode_original


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds = [_round() for _ in range(options.rounds)]
    report.show("Codec: microseconds a tensor", rounds)
    report.write(options.json, rounds)


def _round() -> report.Figures:
    figures: report.Figures = {}
    for label, shape in (("128", (128,)), ("3x224x224", (3, 224, 224))):
        array = np.ones(shape, np.float32)
        message = wire.encode_tensor(array)
        record = encode_original({"x": array})
        calls: dict[str, Callable[[], object]] = {
            "encode_us": partial(wire.encode_tensor, array),
            "arrow_encode_us": partial(_encode_by_arrow, array),
            "original_encode_us": partial(encode_original, {"x": array}),
            "decode_us": partial(wire.decode_tensor, message),
            "arrow_decode_us": partial(_decode_by_arrow, message),
            "original_decode_us": partial(decode_original, record),
        }
        figures |= {f"codec.{label}.{name}": _microseconds(call) for name, call in calls.items()}
    return figures


def _encode_by_arrow(array: wire.Array) -> object:
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)
    return sink.getvalue().to_pybytes()


def _decode_by_arrow(message: bytes) -> object:
    return pa.ipc.read_tensor(pa.BufferReader(message)).to_numpy()


def _microseconds(call: Callable[[], object]) -> float:
    timer = timeit.Timer(call)
    number, seconds = timer.autorange()
    return min(seconds, *timer.repeat(2, number)) / number * 1e6


if __name__ == "__main__":
    main()
