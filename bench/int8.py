"""INT8 beside float32 and bfloat16: milliseconds of a batch and agreement of each candidate of `precision: auto`, and the winner.

    python -m bench.int8 [--model mobilenetv2] [--records 1000]
    python -m bench.int8 --path MODEL --data samples.npz           a model and records of your own

The networks are those of `fitted.py`. INT8 pays on CPUs with avx512_vnni, avx_vnni or amx_int8 in /proc/cpuinfo.
"""

import argparse
import tempfile
from pathlib import Path

from bench import report
from bench.fitted import NETWORKS, save_fitted
from cluster_serving.node.engines.engine import load
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models import detect
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.runtime import Runtime

_BATCH = 8


def main() -> None:
    """Try the candidates of each model and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=NETWORKS, action="append", help="may be repeated; all")
    parser.add_argument("--path", help="a model of your own")
    parser.add_argument("--data", type=Path, help="its calibrationData")
    parser.add_argument("--records", type=int, default=1000, help="generated, half of which judge; 1000")
    parser.add_argument("--agreement", type=float, default=0.99, help="to be proven; 0.99")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    if bool(options.path) != bool(options.data):
        parser.error("--path and --data belong together")
    figures: report.Figures = {}
    if options.path:
        figures = _tried("model", options.path, options.data, options)
    else:
        for name in options.model or NETWORKS:
            with tempfile.TemporaryDirectory() as directory:
                data = save_fitted(name, Path(directory), options.records)
                figures |= _tried(name, directory, data, options)
    report.write(options.json, [figures])


def _tried(name: str, path: str, data: Path, options: argparse.Namespace) -> report.Figures:
    trials = Trials(str(data), agreement=options.agreement)
    model = detect.detect(path)
    loaded = load(model, LoadOptions(options.threads), Runtime("auto", "auto"), _BATCH, trials)
    figures: report.Figures = {}
    for one in loaded.candidates:
        print(f"  {one.described()}")
        if one.ms is not None:
            figures[f"{name}.{one.engine}.{one.precision}.ms"] = one.ms
        if one.arg_max_agreement is not None:
            figures[f"{name}.{one.engine}.{one.precision}.agreement"] = one.arg_max_agreement
    chosen = loaded.runtime
    ratio = figures[f"{name}.native.f32.ms"] / figures[f"{name}.{chosen.engine}.{chosen.precision}.ms"]
    figures[f"{name}.ratio"] = ratio
    print(f"{name}, batch {_BATCH}: {chosen.engine} in {chosen.precision} is chosen, {ratio:.2f} x the native float32")
    return figures


if __name__ == "__main__":
    main()
