"""INT8 beside float32 and bfloat16: milliseconds of a batch and agreement of each candidate of `precision: auto`, and the winner.

    python -m bench.int8 [--model mobilenetv2] [--records 1000]
    python -m bench.int8 --path MODEL --data samples.npz           a model and records of your own

The networks of `architectures.py` have random features. The classifier on top is fitted here to generated classes of pictures, so
that an arg max means something. INT8 pays on CPUs with avx512_vnni, avx_vnni or amx_int8 in /proc/cpuinfo.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from bench import report
from bench.architectures import CLASSES, SAVES, SIDE
from cluster_serving.node.engines.engine import load
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.models import detect
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.runtime import Runtime

onnxruntime.set_default_logger_severity(3)  # the cut network does not use its classifier
_NETWORKS = ("mobilenetv2", "resnet50")
_KINDS = 10
_TO_FIT = 300
_BATCH = 8
_TILES = 2  # of a picture on a side
_RIDGE = 1e-3


def main() -> None:
    """Try the candidates of each model and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=_NETWORKS, action="append", help="may be repeated; both")
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
        for name in options.model or _NETWORKS:
            with tempfile.TemporaryDirectory() as directory:
                data = _prepare(name, Path(directory), options.records)
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


def _prepare(name: str, directory: Path, records: int) -> Path:
    """Write the network with a classifier that is fitted to the generated classes, and return a file of pictures."""
    SAVES[name](directory)
    file = directory / f"{name}.onnx"
    model = onnx.load(str(file))
    pictures, kinds = _pictures(_TO_FIT, seed=1)
    features = _features(model, pictures)
    scale = features.std() or 1.0
    centred = (features - features.mean(axis=0)) / scale
    wanted = np.eye(_KINDS, dtype=np.float32)[kinds] - 1 / _KINDS
    # Ridge regression in its dual form: there are more features than pictures.
    gram = centred @ centred.T + _RIDGE * len(centred) * np.eye(len(centred), dtype=np.float32)
    fitted = (centred.T @ np.linalg.solve(gram, wanted)).T / scale
    weights = np.zeros((CLASSES, features.shape[1]), np.float32)
    weights[:_KINDS] = fitted
    bias = np.full(CLASSES, -10, np.float32)
    bias[:_KINDS] = 1 / _KINDS - fitted @ features.mean(axis=0)
    for tensor in model.graph.initializer:
        if tensor.name in ("classes", "classes_bias"):
            tensor.CopyFrom(numpy_helper.from_array(weights if tensor.name == "classes" else bias, tensor.name))
    onnx.save(model, str(file))
    pictures, kinds = _pictures(records, seed=2)
    session: Any = onnxruntime.InferenceSession(str(file))
    tried = list(zip(pictures[:100], kinds, strict=False))
    right = np.mean([session.run(None, {"image": each[None]})[0].argmax() == kind for each, kind in tried])
    print(f"{name}: {right:.0%} of the pictures are classified right in float32")
    data = directory / "pictures.npy"
    np.save(data, pictures)
    return data


def _pictures(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return pictures of a few classes, in noise and different light, and their classes. Each class has its pattern."""
    patterns = np.random.default_rng(0).uniform(0, 255, (_KINDS, 3, _TILES, _TILES)).astype(np.float32)
    random = np.random.default_rng(seed)
    kinds = random.integers(0, _KINDS, count)
    size = SIDE // _TILES
    pictures = np.empty((count, 3, SIDE, SIDE), np.float32)
    for picture, kind in zip(pictures, kinds, strict=True):
        light = np.repeat(np.repeat(patterns[kind] * np.float32(random.uniform(0.98, 1)), size, axis=1), size, axis=2)
        np.clip(light + 5 * random.standard_normal(picture.shape, np.float32), 0, 255, out=picture)
    return pictures, kinds


def _features(model: Any, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what goes into the classifier."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    flat = cut.graph.node[-1].input[0]
    del cut.graph.node[-1]
    del cut.graph.output[:]
    cut.graph.output.append(onnx.helper.make_tensor_value_info(flat, onnx.TensorProto.FLOAT, None))
    session: Any = onnxruntime.InferenceSession(cut.SerializeToString())
    return np.concatenate([session.run(None, {"image": each[None]})[0] for each in pictures])


if __name__ == "__main__":
    main()
