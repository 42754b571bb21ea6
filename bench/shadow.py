"""Cost of a shadow for the answers: latency of one caller, and images a second of a full queue, with and without the shadow.

MobileNetV2 with random weights, on OpenVINO; its shadow runs OpenVINO and ONNX Runtime. Shares of 0 (no shadow), 1 % and 100 % come
in turns, each on a node of its own. Needs the extra `openvino`. `python -m bench.shadow [--json FILE]`
"""

import argparse
import time
from itertools import islice, repeat
from pathlib import Path

import numpy as np

from bench import report
from bench.architectures import SAVES, SIDE
from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

_PORT = 26399
_JOB = "shadow"
_SHARES = (0.0, 0.01, 1.0)
_WARM = 20


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--seconds", type=float, default=10, help="of the one caller")
    parser.add_argument("--images", type=int, default=2000, help="of the full queue")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with stage(_PORT) as place:
        SAVES["mobilenetv2"](place.directory / "model")
        rounds = [_round(place, options) for _ in range(options.rounds)]
    report.show("Answers beside a shadow", rounds)
    report.write(options.json, rounds)


def _round(place: Stage, options: argparse.Namespace) -> report.Figures:
    figures: report.Figures = {}
    for share in _SHARES:
        settings = {"modelPath": str(place.directory / "model"), "engine": "openvino", "shadow": share}
        with place.node(_JOB, **settings), InputQueue(port=_PORT, name=_JOB) as queue:
            figures |= _measured(f"{share:.0%}", queue, options)
            compared = place.heartbeat(_JOB)["shadowed"]
        figures[f"{share:.0%}.compared"] = compared
        for what in ("p50_ms", "p99_ms", "images_per_s"):
            figures[f"{share:.0%}.{what}_ratio"] = figures[f"{share:.0%}.{what}"] / figures[f"0%.{what}"]
    return figures


def _measured(name: str, queue: InputQueue, options: argparse.Namespace) -> report.Figures:
    image = {"image": np.random.default_rng(0).random((3, SIDE, SIDE), np.float32)}
    took_ms: list[float] = []
    until_s = time.perf_counter() + options.seconds
    while time.perf_counter() < until_s:
        begun_s = time.perf_counter()
        queue.predict(image)
        took_ms.append(1000 * (time.perf_counter() - begun_s))
    begun_s = time.perf_counter()
    for _ in queue.predict_many(islice(repeat(image), options.images)):
        pass
    return {
        f"{name}.p50_ms": float(np.median(took_ms[_WARM:])),
        f"{name}.p99_ms": float(np.quantile(took_ms[_WARM:], 0.99)),
        f"{name}.images_per_s": options.images / (time.perf_counter() - begun_s),
    }


if __name__ == "__main__":
    main()
