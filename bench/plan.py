"""Does the simulation of `swarm plan` predict the rate of a queue, at four sizes of records?

A tiny model (x float32 [N, size] -> y float32 [N, 10], batch 64, one worker) is profiled as by `swarm profile`: one record at a
time, and one client with a small window. From the profile the simulation predicts the rate of another load: two clients with large
windows, on the cores of this machine, which Redis, node and clients share. Then this load is measured. Run it by
`python -m bench.plan [--json FILE]`.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench import report
from bench.stage import Stage, stage
from cluster_serving.node.commands.bench_target import queue_aim
from cluster_serving.node.commands.job_in_redis import Where
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.load.measure import measure
from cluster_serving.node.load.messages import Order
from cluster_serving.swarm.plan.measuring import profile
from cluster_serving.swarm.plan.profile import Profile
from cluster_serving.swarm.plan.serving import Crew, Load, play

_JOB = "bench_plan"
_PORT = 26395
_SIZES = (128, 4_096, 37_632, 150_528)
_BATCH = 64
_CLIENTS = 2
_WINDOW, _WINDOW_BYTES = 1024, 32 << 20  # of each client
_RECORDS = 20_000
_TIMEOUT_S = 60.0


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=4, help="of each load")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="+", default=_SIZES, help="float32 values of a record")
    options = parser.parse_args()
    with stage(_PORT) as place:
        for size in options.sizes:
            _save(place.directory / f"model-{size}", size)
        rounds = [_round(place, options) for _ in range(options.rounds)]
    report.show("Queue, as predicted from a profile and as measured", rounds)
    report.write(options.json, rounds)


def _round(place: Stage, options: argparse.Namespace) -> report.Figures:
    figures: report.Figures = {}
    for size in options.sizes:
        model = place.directory / f"model-{size}"
        config = StartOptions(model_path=str(model), settings=(f"batchSize={_BATCH}",)).load()[0].config
        costs, _ = profile(config, [], 1, options.seconds, lambda _: None)
        window = max(1, min(_WINDOW, _WINDOW_BYTES // costs.payload_bytes))
        predicted, measured = _predicted(costs, window), _measured(place, model, window, options.seconds)
        figures |= {
            f"{costs.payload_bytes}_bytes.predicted_records_per_s": predicted,
            f"{costs.payload_bytes}_bytes.measured_records_per_s": measured,
            f"{costs.payload_bytes}_bytes.ratio": predicted / measured,
        }
    return figures


def _predicted(costs: Profile, window: int) -> float:
    cores = len(os.sched_getaffinity(0))
    crew = Crew(nodes=1, workers=1, cores=cores, callers=_CLIENTS, caller=costs.caller, one_machine=True)
    return play(costs, crew, Load(_RECORDS, window=window)).rate


def _measured(place: Stage, model: Path, window: int, seconds: float) -> float:
    with place.node(_JOB, modelPath=str(model), batchSize=_BATCH, modelParallelism=1, threadPerModel=1):
        target = queue_aim(Where(_JOB, str(place.directory / f"{_JOB}.yaml"), None), [], _TIMEOUT_S).target
        order = Order(target, _CLIENTS * window, 0.0, "poisson", 0, _TIMEOUT_S, _TIMEOUT_S)
        (load,) = measure(order, seconds, _CLIENTS, 1, lambda _: None)
    if load.error is not None or load.messages:
        raise SystemExit(f"the load failed: {load.error or load.messages}")
    answers = sum(window.took_s.size for window in load.counted)
    return answers / sum(window.seconds for window in load.counted)


def _save(directory: Path, size: int) -> None:
    """Write a folder with the ONNX model."""
    weight = np.random.default_rng(0).standard_normal((size, 10), np.float32) / 12
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "plan",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(weight, "w")],
    )
    directory.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(directory / "plan.onnx"))


if __name__ == "__main__":
    main()
