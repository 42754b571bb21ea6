"""CPU time of one JPEG record: microseconds in each process on its way, and in each step from its file to a row of a batch.

The model computes nothing and sleeps for each image, so that images come, wait and leave in batches as beside a real model, and the
way alone is counted. `way`: frontend, Redis, reader and writer together. The steps are timed here, as a worker makes them; `row` is
all of them together, and `rest` the other work of the worker for an image: batch, model and answer.
"""

import argparse
import dataclasses
import time
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import cv2
import psutil

from bench import cpu, pictures, report
from bench.driver import Driver, Target, driver
from bench.records import jpeg
from bench.stage import stage
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.image import ImageFit, decode

JOB = "images"

_PORT, _HTTP_PORT = 26396, 26397
_WAY = ("frontend", "redis", "reader", "writer")
_CALLS = 100


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--model-ms", type=float, default=10, help="that the model sleeps for each image")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--window", type=int, default=32, help="images under way")
    parser.add_argument("--seconds", type=float, default=5, help="of each load")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    settings = {"modelParallelism": options.workers, "threadPerModel": 1, "batchSize": options.batch}
    cv2.setNumThreads(1)
    with stage(_PORT) as bare, driver() as client:
        place = dataclasses.replace(bare, environment={pictures.SLEEP_S: str(options.model_ms / 1000)})
        with place.node(JOB, modelPath=pictures.__file__, **settings), place.frontend(JOB, _HTTP_PORT) as frontend:
            supervisor, *children = cpu.of_node(place, JOB)
            parts = {process: process.name().partition("-")[0] for process in children}
            parts |= {supervisor: "supervisor", cpu.of_redis(place): "redis"}
            parts |= dict.fromkeys([frontend, *frontend.children(recursive=True)], "frontend")
            targets = [Target("queue", _PORT, JOB, "jpeg"), Target("http", _HTTP_PORT, JOB, "jpeg")]
            for target in targets:
                client.closed(target, options.window, 1)  # warm-up
            rounds: list[report.Figures] = []
            for _ in range(options.rounds):
                steps = _steps()
                rounds.append(steps)
                for target in targets:
                    cost = _cost(client, target, parts, options.window, options.seconds)
                    rest = cost["worker_us"] - steps["step.row_us"]
                    rounds[-1] |= {f"{target.over}.{name}": value for name, value in (cost | {"rest_us": rest}).items()}
    report.show("An image on its way: microseconds of CPU", rounds)
    report.write(options.json, rounds)


def _cost(
    client: Driver, target: Target, parts: Mapping[psutil.Process, str], window: int, seconds: float
) -> report.Figures:
    before_s = _times_s(parts)
    closed = client.closed(target, window, seconds)
    if closed.failed:
        raise SystemExit(f"{closed.failed} of {closed.answered} images failed")
    cost = {
        f"{part}_us": 1e6 * (after_s - before_s[part]) / closed.answered for part, after_s in _times_s(parts).items()
    }
    way = sum(cost[f"{part}_us"] for part in _WAY)
    beside = {"images_per_s": closed.rate_per_s, "client_us": 1e6 * closed.cpu_s_per_answer}
    return cost | beside | {"way_us": way, "way_of_worker": way / cost["worker_us"]}


def _times_s(parts: Mapping[psutil.Process, str]) -> dict[str, float]:
    """CPU seconds of each part so far."""
    return {name: cpu.used_s(process for process, part in parts.items() if part == name) for name in parts.values()}


def _steps() -> report.Figures:
    """The file read, its pixels resized, and all of it with the layout of the row."""
    content, fit = jpeg(0), ImageFit(TensorSpec(*pictures.Model.inputs[0]))
    image = decode(content, 3)
    steps: dict[str, Callable[[], object]] = {
        "decode": partial(decode, content, 3),
        "resize": partial(cv2.resize, image, (pictures.SIDE, pictures.SIDE)),
        "row": partial(fit, content),
    }
    return {f"step.{name}_us": _microseconds(step) for name, step in steps.items()}


def _microseconds(step: Callable[[], object]) -> float:
    timer = timeit.Timer(step, timer=time.process_time)
    return 1e6 * min(timer.repeat(3, _CALLS)) / _CALLS


if __name__ == "__main__":
    main()
