"""Share of a bare loop's images a second that the queue gives with real models, and the node's CPU time beside the loop's.

MobileNetV2 and ResNet-50 (`architectures.py`), sent as float32 tensors and as JPEG files, which both sides decode and resize. Node
and loop take turns in each round, with the same runtime, processes, threads and batch; the `ceiling` is the loop in the way that
was fastest of a few, tried before the rounds.

The client holds its records encoded and leaves answers undecoded; client and Redis work on the same cores as the node, where the
loop has all cores to itself. `of_bare` is with that, as a user sees it; `of_bare_on_cores_left` is the same for the share of the
machine that client and Redis left. CPU time is told apart: `node` is the supervisor, reader, writer and workers.
"""

import argparse
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench import cpu, report
from bench.architectures import SAVES
from bench.driver import Driver, Target, driver
from bench.loops import RUNTIMES, Loops, Way, loops, save_batch, ways
from bench.records import jpeg, pixels
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

MODELS = ("mobilenetv2", "resnet50")
CONTENTS = ("tensor", "jpeg")

_PORT = 26386
_CEILING_BATCHES = (1, 8, 32)
_TRIAL_S = 2.0
_TOLERANCES = {"f32": 0.02, "bf16": 0.2}
"""By precision: of the largest logit, how far the node's may be from ONNX Runtime's."""


class _Case(NamedTuple):
    """One model with one kind of content, and the loops that it is measured beside."""

    job: str
    content: str
    window: int
    same: Loops
    best: Loops


def main() -> None:
    """Measure, print tables, and write the figures where they are wanted."""
    options = _options()
    rounds: list[report.Figures] = [{} for _ in range(options.rounds)]
    told: list[str] = []
    with stage(_PORT) as place, driver() as client:
        for model in options.models:
            SAVES[model](place.directory / model)
            best = _best(place, model, options)
            for content in options.contents:
                figures, way = _measure(place, client, model, content, best, options)
                for index, each in enumerate(figures):
                    rounds[index] |= {f"{model}.{content}.{name}": value for name, value in each.items()}
                told.append(f"{model}.{content}: {way}")
    report.show(f"Serving beside a bare loop, engine {options.engine} {options.precision}", rounds)
    print("\n".join(told))
    report.write(options.json, rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--contents", nargs="+", choices=CONTENTS, default=CONTENTS)
    parser.add_argument("--engine", choices=RUNTIMES, default="native")
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="bf16 is OpenVINO's alone")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument(
        "--workers", type=int, default=cores, help="and processes of the loop; 0: what the node chooses"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each; 0: the same")
    parser.add_argument("--batch", type=int, default=8, help="records in one batch; 0: the same")
    parser.add_argument("--seconds", type=float, default=10, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def _measure(
    place: Stage, client: Driver, model: str, content: str, best: Way, options: argparse.Namespace
) -> tuple[list[report.Figures], str]:
    """The figures of each round, and in which ways the loops ran."""
    path, kind = place.directory / model, RUNTIMES[options.engine]
    job = f"{model}_{content}"
    settings = {"engine": options.engine, "precision": options.precision, "batchSize": options.batch or None}
    settings |= {"modelParallelism": options.workers or None, "threadPerModel": options.threads or None}

    def looping(way: Way) -> Loops:
        batch = save_batch(place.directory, content, way.batch)
        return stack.enter_context(loops(kind, path, batch, way, options.precision))

    with ExitStack() as stack:
        stack.enter_context(place.node(job, modelPath=str(path), **settings))
        told = place.heartbeat(job)
        same = Way(told["workers"], told["threads"], told["batch_size"])
        _check(place, path, job, _TOLERANCES[options.precision])
        window = 4 * same.processes * same.batch
        running = looping(same)
        case = _Case(job, content, window, running, running if best == same else looping(best))
        client.closed(Target("queue", place.port, job, content), window, options.seconds)  # warm-up
        figures = [_round(place, client, case, options.seconds) for _ in range(options.rounds)]
    return figures, f"node and loop {same}; ceiling {best}"


def _best(place: Stage, model: str, options: argparse.Namespace) -> Way:
    """The fastest way of the loop, on tensors."""
    rates: dict[Way, float] = {}
    for way in ways(_CEILING_BATCHES):
        batch = save_batch(place.directory, "tensor", way.batch)
        with loops(RUNTIMES[options.engine], place.directory / model, batch, way, options.precision) as running:
            rates[way] = running.run(_TRIAL_S).rows_per_s
    return max(rates, key=lambda way: rates[way])


def _check(place: Stage, path: Path, job: str, tolerance: float) -> None:
    """Stop where the node computes something else than ONNX Runtime on the same pixels."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path / f"{path.name}.onnx"), providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, {"image": pixels(jpeg(0))[None]})[0])[0]
    with InputQueue(port=place.port, name=job) as queue:
        for image in (jpeg(0), pixels(jpeg(0))):
            found = queue.predict({"image": image}, timeout=60)
            if not np.allclose(found, expected, atol=tolerance * np.abs(expected).max()):
                raise SystemExit(f"the node computes something else than ONNX Runtime for a {type(image).__name__}")


def _round(place: Stage, client: Driver, case: _Case, seconds: float) -> report.Figures:
    same = case.same.run(seconds)
    best = same if case.best is case.same else case.best.run(seconds)
    node, redis = cpu.of_node(place, case.job), [cpu.of_redis(place)]
    before = cpu.used_s(node), cpu.used_s(redis)
    begun_s = time.perf_counter()
    served = client.closed(Target("queue", place.port, case.job, case.content), case.window, seconds)
    spent_s = time.perf_counter() - begun_s
    node_s, redis_s = cpu.used_s(node) - before[0], cpu.used_s(redis) - before[1]
    if served.failed:
        raise SystemExit(f"{served.failed} of {served.answered} records failed")
    others_s = redis_s + served.cpu_s_per_answer * served.answered
    left = 1 - others_s / spent_s / len(os.sched_getaffinity(0))
    node_s_per_image = node_s / served.answered
    return {
        "served_images_per_s": served.rate_per_s,
        "bare_images_per_s": same.rows_per_s,
        "ceiling_images_per_s": best.rows_per_s,
        "of_bare": served.rate_per_s / same.rows_per_s,
        "of_ceiling": served.rate_per_s / best.rows_per_s,
        "of_bare_on_cores_left": served.rate_per_s / same.rows_per_s / left,
        "node_cpu_ms_per_image": 1000 * node_s_per_image,
        "bare_cpu_ms_per_image": 1000 * same.cpu_s_per_row,
        "cpu_of_bare": node_s_per_image / same.cpu_s_per_row,
        "redis_cpu_ms_per_image": 1000 * redis_s / served.answered,
        "client_cpu_ms_per_image": 1000 * served.cpu_s_per_answer,
    }


if __name__ == "__main__":
    main()
