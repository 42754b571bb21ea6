"""The ceiling: each runtime in a bare loop, as its own documentation shows it; no code of this project's in between.

    python -m bench.bare FORMAT PATH INPUT [--threads 1] [--precision f32] [--cores 0 1]

INPUT is the batch: a `.npy` file, or an `.npz` of JPEG files, which the loop decodes and resizes in each run. Loads, warms up, and
then answers each number of seconds read from standard input with one line: rows a second, CPU seconds a row. `loops.py` starts it.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.models.allocator import keep_freed_memory

Batch = NDArray[Any]
Loop = Callable[[Any], object]

_WARM_UP_RUNS = 5


def onnx(path: Path, threads: int, _precision: str) -> Loop:
    """ONNX Runtime."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    session = ort.InferenceSession(_only(path.glob("*.onnx")), settings, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def run(batch: Batch) -> object:
        return session.run(None, {name: batch})

    return run


def openvino(path: Path, threads: int, precision: str) -> Loop:
    """OpenVINO; it reads ONNX files too."""
    from cluster_serving.node.models.openvino import ov  # without its telemetry

    settings = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    definition = _only(file for file in path.iterdir() if file.suffix in (".xml", ".onnx"))
    request = ov.Core().compile_model(definition, "CPU", settings).create_infer_request()
    return lambda batch: request.infer({0: batch}, share_inputs=True, share_outputs=True)


def torch(path: Path, threads: int, _precision: str) -> Loop:
    """TorchScript, frozen."""
    import torch

    torch.set_num_threads(threads)
    loaded = torch.jit.load(_only(path.glob("*.pt")))  # type: ignore[no-untyped-call]
    module = torch.jit.freeze(loaded.eval())

    def run(batch: Batch) -> object:
        with torch.inference_mode():
            return module(torch.from_numpy(batch)).numpy()

    return run


def tensorflow_saved(path: Path, threads: int, _precision: str) -> Loop:
    """A SavedModel's default signature."""
    tf = _tensorflow(threads)
    loaded = tf.saved_model.load(str(path))
    signature = loaded.signatures["serving_default"]
    name = next(iter(signature.structured_input_signature[1]))

    def run(batch: Batch) -> object:
        return [each.numpy() for each in signature(**{name: tf.constant(batch)}).values()]

    run.keeps = loaded  # type: ignore[attr-defined]  # its variables live as long as it does
    return run


def tensorflow_frozen(path: Path, threads: int, _precision: str) -> Loop:
    """A frozen graph, pruned to its input and output."""
    import json

    tf = _tensorflow(threads)
    graph = tf.compat.v1.GraphDef.FromString((path / "frozen_inference_graph.pb").read_bytes())
    meta = json.loads((path / "graph_meta.json").read_text())
    imported = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph, name=""), [])
    function = imported.prune(meta["input_names"][0], meta["output_names"][0])
    return lambda batch: function(tf.constant(batch)).numpy()


def caffe(path: Path, threads: int, _precision: str) -> Loop:
    """OpenCV's network."""
    import cv2

    cv2.setNumThreads(threads)
    net = cv2.dnn.readNetFromCaffe(_only(path.glob("*.prototxt")), _only(path.glob("*.caffemodel")))

    def run(batch: Batch) -> object:
        net.setInput(batch)
        return net.forward()

    return run


def bigdl(path: Path, threads: int, _precision: str) -> Loop:
    """There is no other runtime for it here: the module that our backend builds, called with nothing around it."""
    from cluster_serving.node.models.base import LoadOptions
    from cluster_serving.node.models.detect import detect, load

    backend = load(detect(str(path)), LoadOptions(threads))
    name = backend.inputs[0].name
    return lambda batch: backend.run({name: batch})


LOOPS: dict[str, Callable[[Path, int, str], Loop]] = {
    "onnx": onnx,
    "openvino": openvino,
    "pytorch": torch,
    "tensorflowSavedModel": tensorflow_saved,
    "tensorflowFrozenModel": tensorflow_frozen,
    "caffe": caffe,
    "bigdl": bigdl,
}


def _tensorflow(threads: int) -> Any:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return tf


def _only(files: Iterable[Path]) -> str:
    (file,) = files
    return str(file)


def decoding(run: Loop) -> Loop:
    """The same loop on JPEG files: each is decoded and resized, one after the other, into the batch that the model gets."""
    from bench.records import pixels

    return lambda files: run(np.stack([pixels(file) for file in files]))


def main() -> None:
    """Serve rates on standard output."""
    parser = argparse.ArgumentParser()
    parser.add_argument("format", choices=LOOPS)
    parser.add_argument("path", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--cores", type=int, nargs="*")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    keep_freed_memory()
    run = LOOPS[options.format](options.path, options.threads, options.precision)
    given = np.load(options.input)
    if options.input.suffix == ".npz":
        run, given = decoding(run), list(given.values())
    for _ in range(_WARM_UP_RUNS):
        run(given)
    print("ready", flush=True)
    for line in sys.stdin:
        begun_s, used_s, runs, seconds = time.perf_counter(), time.process_time(), 0, float(line)
        while (spent_s := time.perf_counter() - begun_s) < seconds:
            run(given)
            runs += 1
        rows = runs * len(given)
        print(rows / spent_s, (time.process_time() - used_s) / rows, flush=True)


if __name__ == "__main__":
    main()
