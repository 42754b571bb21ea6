"""Does the tuner find what an exhaustive sweep finds, in how much of its time, and the same every time?

Three ONNX models with random weights: a small convolutional network, bound by arithmetic; a perceptron of 270 MB, bound by memory;
and the tiny one of `mlp.py`, bound by the serving path. The sweep measures each shape with each batch size in lanes of its own,
for a fixed time. Then the tuner's choice and the sweep's best are measured in turns. `first_start_ratio` compares the first start,
for which nothing is measured, with the tuner's choice: records a second of a full queue. `lone.first_start_ratio` does the same
for the objective of a lone caller, in answers one after the other. `--quick` shows that it works, no more.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.progress import track

from bench import report
from bench.mlp import save_mlp
from cluster_serving.client.servers.process import log
from cluster_serving.node.config.arrangement import chosen, most_copies
from cluster_serving.node.config.choice import Given, Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.models.detect import Detected, detect
from cluster_serving.node.supervisor.child import allow_descriptors
from cluster_serving.node.topology.budget import Budget, read_allowance, read_budget
from cluster_serving.node.tuning.candidates import Candidate, batches, shapes
from cluster_serving.node.tuning.search import SearchProgress
from cluster_serving.node.tuning.stand import Stand
from cluster_serving.node.tuning.trial_redis import on_trial_redis
from cluster_serving.node.tuning.tuner import Terms, tune

_JOB = "bench_tuning"
_QUEUE = Objective()
_LONE = Objective(latency_ms=0.001)  # that none meets: the shortest answer wins


def main() -> None:
    """Measure, print tables, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--model", choices=list(_MODELS), action="append", help="only these")
    parser.add_argument("--seconds", type=float, default=8.0, help="of the sweep for each candidate")
    parser.add_argument("--repeats", type=int, default=10, help="runs of the tuner")
    parser.add_argument("--rounds", type=int, default=9, help="turns of the choice and the sweep's best")
    parser.add_argument("--quick", action="store_true", help="half a second for each candidate, two runs, three turns")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.repeats, options.rounds = 0.5, 2, 3
    log.configure("bench", "error")
    allow_descriptors()
    figures: report.Figures = {}
    with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as name:
        for model in options.model or _MODELS:
            _MODELS[model](Path(name) / model)
            figures |= {f"{model}.{what}": value for what, value in _one(Path(name) / model, options).items()}
    report.show_once("Tuner beside an exhaustive sweep", figures, f"{options.repeats} runs of the tuner")
    report.write(options.json, [figures])


def _one(path: Path, options: argparse.Namespace) -> report.Figures:
    config = Config(model_path=str(path), job_name=_JOB, log_level="error")
    model, budget = detect(config.model_path), read_budget(read_allowance(os.sched_getaffinity(0)))
    swept, sweep_s = _sweep(config, model, budget, options.seconds)
    best = max(swept, key=lambda one: swept[one].rate)
    found: list[tuple[Candidate, float]] = []
    for _ in track(range(options.repeats), f"{path.name}: tuner", transient=True):
        tuned = tune(config, model, budget, Terms(), SearchProgress())
        found.append((tuned.chosen.candidate, tuned.took_s))
    choices = Counter(choice for choice, _ in found).most_common()
    console = Console()
    console.print(f"{path.name}: the sweep's best is {_described(best)}, {swept[best].rate:,.0f} records/s")
    for choice, times in choices:
        console.print(
            f"    chosen {times} times: {_described(choice)}, in the sweep {swept[choice].rate:,.0f} records/s"
        )
    ratios = [_ratio(config, model, budget, choice, best, options.rounds) for choice, _ in choices]
    first = _first_start(config, model, budget)
    console.print(f"    without tuning: {_described(first)}, in the sweep {swept[first].rate:,.0f} records/s")
    return {
        "first_start_ratio": _ratio(config, model, budget, first, choices[0][0], options.rounds),
        "lone.first_start_ratio": _lone(config, model, budget, options.rounds),
        "speed_ratio": ratios[0],
        "least_speed_ratio": min(ratios),
        "time_ratio": median(took_s for _, took_s in found) / sweep_s,
        "same_choice": choices[0][1] / len(found),
        "sweep_s": sweep_s,
        "candidates": float(len(swept)),
    }


def _sweep(config: Config, model: Detected, budget: Budget, seconds: float) -> tuple[dict[Candidate, Measured], float]:
    begun_s = time.monotonic()
    found: dict[Candidate, Measured] = {}
    given = Given.by(config, model.backend)
    with on_trial_redis(config) as trial, Stand(trial, model, budget, Objective(), _go_on) as stand:
        for shape in shapes(budget, given):
            sizes = batches(given, stand.inputs, config.slot_bytes)
            for size in track(sizes, f"{Path(config.model_path).name}: sweep, {shape.described()}", transient=True):
                stand.open(shape, size)
                found[Candidate(shape, size)] = stand.measure(Candidate(shape, size), seconds)
                stand.close(shape)
    return found, time.monotonic() - begun_s


def _first_start(config: Config, model: Detected, budget: Budget) -> Candidate:
    usual = chosen(config, model.backend, budget, most_copies(model))
    return Candidate(Shape(usual.workers, usual.threads), usual.batch)


def _lone(config: Config, model: Detected, budget: Budget, rounds: int) -> float:
    """Return the speed of the first start beside what the tuner finds, for one record at a time of each worker."""
    lone = config.model_copy(update={"objective": str(_LONE)})
    tuned = tune(lone, model, budget, Terms(), SearchProgress()).chosen.candidate
    first = _first_start(lone, model, budget)
    Console().print(f"    for a lone caller: tuned {_described(tuned)}, without tuning {_described(first)}")
    pair = [Candidate(one.shape, batch=1) for one in (first, tuned)]
    return _ratio(lone, model, budget, pair[0], pair[1], rounds, _LONE)


def _ratio(
    config: Config,
    model: Detected,
    budget: Budget,
    one: Candidate,
    other: Candidate,
    rounds: int,
    objective: Objective = _QUEUE,
) -> float:
    """Return the speed of `one` as a multiple of that of `other`: in turns, each with its own lanes; median of the rounds."""
    if one == other:
        return 1.0
    with on_trial_redis(config) as trial:
        stands = [Stand(trial, model, budget, objective, _go_on) for _ in range(2)]
        with stands[0], stands[1]:
            for stand, candidate in zip(stands, (one, other), strict=True):
                stand.open(candidate.shape, candidate.batch)
                stand.measure(candidate, 1.0)
            found = [
                _gain(objective, stands[0].measure(one, 1.0), stands[1].measure(other, 1.0))
                for _ in track(range(rounds), "choice and best in turns", transient=True)
            ]
    return median(found)


def _gain(objective: Objective, one: Measured, other: Measured) -> float:
    return other.p50_ms / one.p50_ms if objective.latency_ms else one.rate / other.rate


def _described(candidate: Candidate) -> str:
    return f"{candidate.shape.described()}, batch {candidate.batch}"


def _go_on() -> None:
    """Nobody wants it to end."""


def _save_conv(directory: Path) -> None:
    """Input x float32 [N,3,64,64] -> five convolutions of 32 channels -> y float32 [N,10]."""
    random = np.random.default_rng(0)
    nodes, weights, channels, name = [], [], 3, "x"
    for layer in range(5):
        weights.append(
            numpy_helper.from_array(random.standard_normal((32, channels, 3, 3), np.float32) / 12, f"w{layer}")
        )
        nodes.append(helper.make_node("Conv", [name, f"w{layer}"], [f"c{layer}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"]))
        channels, name = 32, f"r{layer}"
    weights.append(numpy_helper.from_array(random.standard_normal((32, 10), np.float32), "w"))
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("MatMul", ["flat", "w"], ["y"]))
    _save(directory, nodes, weights, ["N", 3, 64, 64])


def _save_large(directory: Path) -> None:
    """Input x float32 [N,4096] -> four layers of 4096 -> y float32 [N,10]."""
    random = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for layer in range(4):
        weights.append(numpy_helper.from_array(random.standard_normal((4096, 4096), np.float32) / 64, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]))
        name = f"r{layer}"
    weights.append(numpy_helper.from_array(random.standard_normal((4096, 10), np.float32), "w"))
    nodes.append(helper.make_node("MatMul", [name, "w"], ["y"]))
    _save(directory, nodes, weights, ["N", 4096])


def _save(
    directory: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], shape: list[str | int | None]
) -> None:
    graph = helper.make_graph(
        nodes,
        directory.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    directory.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(directory / f"{directory.name}.onnx"))


_MODELS: dict[str, Callable[[Path], None]] = {"arithmetic": _save_conv, "memory": _save_large, "overhead": save_mlp}


if __name__ == "__main__":
    main()
