"""Images a second that one Redis carries, as float32 and in the fewest bytes that give the model the same pixels.

The model computes nothing. Images are pixels, (3, 224, 224) float32 of 0 to 255, and one client keeps a window of them under way by
`predict_many`: as they are, with `compress`, as uint8 from the program, and as the JPEG files that the pixels are from, of the
model's size, which the node decodes. `gain` is the images a second beside float32 on this machine, whose cores all processes
share. `redis_gain` is the same of Redis alone, by its CPU time.
`python -m bench.payload [--json FILE]`
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from bench import cpu, pictures, records, report
from bench.architectures import SIDE
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

_PORT = 26398
_JOB = "payload"

Image = Mapping[str, Any]


class _Way(NamedTuple):
    """A way to send an image: settings of the queue, and the image of a JPEG file as the program gives it."""

    settings: Mapping[str, Any]
    image: Callable[[bytes], Image]


def _pixels(file: bytes) -> Image:
    return {"image": records.pixels(file)}


def _bytes(file: bytes) -> Image:
    return {"image": records.pixels(file).astype(np.uint8)}


def _file(file: bytes) -> Image:
    return {"image": file}


_WAYS = {
    "float32": _Way({}, _pixels),
    "lz4": _Way({"compress": "lz4"}, _pixels),
    "zstd": _Way({"compress": "zstd"}, _pixels),
    "uint8": _Way({}, _bytes),
    "jpeg": _Way({}, _file),
}


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--images", type=int, default=1500, help="of each load")
    parser.add_argument("--window", type=int, default=128, help="images under way")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = [records.jpeg(number, SIDE, SIDE) for number in range(records.DISTINCT)]
    with stage(_PORT) as place, place.node(_JOB, modelPath=pictures.__file__, batchSize=16):
        rounds = [_round(place, files, options) for _ in range(options.rounds)]
    report.show("Images through one Redis, without a model", rounds)
    report.write(options.json, rounds)


def _round(place: Stage, files: Sequence[bytes], options: argparse.Namespace) -> report.Figures:
    figures: report.Figures = {}
    for name, way in _WAYS.items():
        sent = [way.image(file) for file in files]
        with InputQueue(port=_PORT, name=_JOB, **way.settings) as queue:
            rate, redis_us = measured(place, queue, sent, options.images, options.window)
        figures[f"{name}.images_per_s"] = rate
        figures[f"{name}.redis_us"] = redis_us
        figures[f"{name}.redis_gain"] = figures["float32.redis_us"] / figures[f"{name}.redis_us"]
        figures[f"{name}.gain"] = figures[f"{name}.images_per_s"] / figures["float32.images_per_s"]
    return figures


def measured(
    place: Stage, queue: InputQueue, records: Sequence[Mapping[str, Any]], count: int, window: int
) -> tuple[float, float]:
    """Send `count` records, and return how many a second are answered, and the CPU time of Redis for each in µs."""
    _send(queue, islice(cycle(records), window), window)  # samples are taken, and memory
    redis, begun_s = cpu.of_redis(place), perf_counter()
    before_s = cpu.used_s([redis])
    _send(queue, islice(cycle(records), count), window)
    return count / (perf_counter() - begun_s), 1e6 * (cpu.used_s([redis]) - before_s) / count


def _send(queue: InputQueue, images: Iterable[Image], window: int) -> None:
    for _ in queue.predict_many(images, window=window, timeout=60):
        pass


if __name__ == "__main__":
    main()
