"""Share of a runtime's own speed that reaches the client: served images a second beside a bare loop, backend by backend.

SqueezeNet (227 x 227, float32 tensors, batch 8, one worker of one thread) in every format, `python -m bench.models [--models DIR]`.
Node and loop take turns in each round, and the loop (`bare.py`) has nothing of ours in it. Beside that: the seconds until a worker
is ready, its files being in the page cache, and the memory that the worker then holds (of its own, not shared).
"""

import argparse
import os
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np

from bench import report
from bench.bare import Batch
from bench.loops import Loops, Way, loops
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue
from cluster_serving.node.job.directory import Job

_PORT = 26380
_BATCH = 8
_WINDOW = 4 * _BATCH
MODELS = Path(__file__).resolve().parents[2] / "shared" / "models"
FOLDERS = {
    "onnx": "squeezenet-onnx",
    "openvino": "squeezenet-openvino",
    "pytorch": "squeezenet-torch",
    "tensorflowSavedModel": "squeezenet-tf-saved",
    "tensorflowFrozenModel": "squeezenet-tf-frozen",
    "caffe": "squeezenet-caffe",
    "bigdl": "squeezenet-bigdl",
}


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--models", type=Path, default=MODELS, metavar="DIR", help="where the squeezenet-* folders are")
    parser.add_argument("--only", choices=FOLDERS, action="append", help="a format; may be repeated")
    parser.add_argument("--seconds", type=float, default=8, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with stage(_PORT) as place:
        images = np.resize(np.load(options.models / "squeezenet.input.npy"), (_BATCH, 3, 227, 227))
        np.save(place.directory / "batch.npy", images)
        measured = {kind: _measure(kind, place, options) for kind in options.only or FOLDERS}
    rounds = [
        {f"{kind}.{name}": value for kind, turns in measured.items() for name, value in turns[index].items()}
        for index in range(options.rounds)
    ]
    report.show(f"SqueezeNet, batch {_BATCH}, one worker of one thread", rounds)
    report.write(options.json, rounds)


def _measure(kind: str, place: Stage, options: argparse.Namespace) -> list[report.Figures]:
    path = options.models / FOLDERS[kind]
    settings = {"modelPath": str(path), "batchSize": _BATCH, "modelParallelism": 1, "threadPerModel": 1}
    with place.node(kind, **settings):
        pass  # the framework's files are in the page cache from here on
    batch = place.directory / "batch.npy"
    with place.node(kind, **settings), loops(kind, path, batch, Way(1, 1, _BATCH)) as loop:
        start = _start_of(kind, place)
        images = np.load(batch)
        with InputQueue(port=_PORT, name=kind) as queue:
            _served(queue, images, 1)
            return [_round(queue, images, loop, options.seconds) | start for _ in range(options.rounds)]


def _round(queue: InputQueue, images: Batch, loop: Loops, seconds: float) -> report.Figures:
    ceiling = loop.run(seconds).rows_per_s
    served = _served(queue, images, seconds)
    return {"served_images_per_s": served, "bare_images_per_s": ceiling, "ratio": served / ceiling}


def _served(queue: InputQueue, images: Batch, seconds: float) -> float:
    """Images a second that come back, counted from the first answer to the last."""
    until_s = time.perf_counter() + seconds

    def records() -> Generator[Batch]:
        index = 0
        while time.perf_counter() < until_s or index % _BATCH:
            yield images[index % _BATCH]
            index += 1

    arrivals: list[float] = []
    for answer in queue.predict_many(records(), window=_WINDOW):
        assert np.asarray(answer).size == 1000
        arrivals.append(time.perf_counter())
    # Answers come a batch at a time: the first batch only starts the clock.
    return (len(arrivals) - _BATCH) / (arrivals[-1] - arrivals[_BATCH - 1])


def _start_of(job: str, place: Stage) -> report.Figures:
    """Seconds until the worker was ready, and the memory it holds."""
    supervisor = Job.of(job, {**os.environ, "CLUSTER_SERVING_HOME": str(place.directory / "state")}).supervisor()
    assert supervisor is not None
    worker = next(child for child in supervisor.children() if child.cmdline()[-1] == "worker")
    log = (place.directory / "state" / job / "node.log").read_text()
    ready = next(line for line in log.splitlines() if "ready" in line and "worker-0" in line)
    seconds = next(part.partition("=")[2] for part in ready.split() if part.startswith("seconds="))
    return {"start_s": float(seconds), "worker_mb": worker.memory_full_info().uss / 1e6}


if __name__ == "__main__":
    main()
