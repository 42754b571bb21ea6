"""Seconds from `serve MODEL` to a right answer by the `curl` that it prints, with a model of each format.

SqueezeNet in every format has to answer the printed picture with probabilities. An ONNX file of this moment, which nothing can
have been kept of, and a model in Python have to answer with the right numbers. Everything has run once before, so that files
are in the page cache. Exits with 1 when half of the answers of a format come after 5 s.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from numpy.typing import NDArray
from onnx import TensorProto, helper

from bench import cpu, http_model, report
from bench.models import FOLDERS, MODELS

_REDIS_PORT, _HTTP_PORT = 26402, 26403
_MOST_S = 5.0
_UNKNOWN, _PYTHON = "unknown onnx", "python"
_CALL = re.compile(r"^((?:curl|python3 -c)(?:.|\n)*?)\n\n", re.MULTILINE)
_TOLERANCE = 1e-3
_PRINTED = 0.5  # every number of the printed call


def main() -> None:
    """Measure, print a table, and write the figures where they are wanted."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--models", type=Path, default=MODELS, metavar="DIR", help="where the squeezenet-* folders are")
    parser.add_argument("--only", nargs="+", choices=[_UNKNOWN, _PYTHON, *FOLDERS], help="these formats")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds: list[report.Figures] = []
    for number in range(1 + options.rounds):
        figures: report.Figures = {}
        for kind in options.only or (_UNKNOWN, _PYTHON, *FOLDERS):
            with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as home:
                model = options.models / FOLDERS[kind] if kind in FOLDERS else Path(http_model.__file__)
                if kind == _UNKNOWN:
                    model = _save_unknown(Path(home) / "unknown.onnx", number + 2)
                took_s, cpu_s, answer = _first_answer(model, Path(home))
            figures |= {f"{kind}.s": took_s, f"{kind}.cpu_s": cpu_s}
            if not _is_right(kind, np.asarray(answer), number + 2):
                raise SystemExit(f"{kind} answers {str(answer)[:200]}")
            print(f"{kind}: {took_s:.2f} s", file=sys.stderr, flush=True)
        rounds.append(figures)
    rounds = rounds[1:]
    report.show("From `serve` to the first answer", rounds)
    report.write(options.json, rounds)
    late = [name for name, took_s in report.medians(rounds).items() if not name.endswith("cpu_s") and took_s > _MOST_S]
    if late:
        sys.exit(f"later than {_MOST_S:g} s: {', '.join(late)}")


def _save_unknown(path: Path, factor: int) -> Path:
    """Save a model that nobody has served before: y = factor * x."""
    shape: list[str | int | None] = ["N", 8]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        f"unknown-{time.time_ns()}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("factor", TensorProto.FLOAT, [], [float(factor)])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def _first_answer(model: Path, home: Path) -> tuple[float, float, Any]:
    """Return the seconds from the command to the answer to its printed call, the servers' CPU seconds, and the prediction."""
    environment = os.environ | {"CLUSTER_SERVING_HOME": str(home / "state")}
    command = [sys.executable, "-P", "-m", "cluster_serving.node.cli", "serve", str(model.absolute())]
    command += [f"--redis-url=localhost:{_REDIS_PORT}", f"--port={_HTTP_PORT}"]
    begun_s, shown = time.perf_counter(), ""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home, env=environment
    ) as serve:
        assert serve.stdout is not None
        try:
            for line in serve.stdout:
                shown += line
                if (call := _CALL.search(shown)) is not None:
                    break
            else:
                raise SystemExit(f"no call is printed:\n{shown}")
            told = subprocess.run(["/bin/sh", "-c", call[1]], capture_output=True, text=True, check=True).stdout
            took_s, servers = time.perf_counter() - begun_s, psutil.Process(serve.pid)
            cpu_s = cpu.used_s([servers, *servers.children(recursive=True)])
        finally:
            serve.send_signal(signal.SIGINT)
            serve.communicate()
    answer = json.loads(told)
    if "predictions" not in answer:
        raise SystemExit(f"{model} does not answer: {told}")
    return took_s, cpu_s, answer["predictions"][0]


def _is_right(kind: str, answer: NDArray[Any], factor: int) -> bool:
    """Return whether an answer is that of the model: numbers times a factor, ten sums, or the probabilities of 1,000 classes."""
    if kind == _UNKNOWN:
        return np.array_equal(answer, np.full(8, _PRINTED * factor))
    if kind == _PYTHON:
        expected = http_model.Model().predict({"x": np.full((1, 128), _PRINTED, np.float32)})["y"][0]
        return np.allclose(answer, expected, atol=_TOLERANCE)
    return answer.size == 1000 and abs(float(answer.sum()) - 1) < _TOLERANCE


if __name__ == "__main__":
    main()
