"""Networks with random features, and a classifier fitted to generated pictures or texts, so that an arg max means something."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

from bench.architectures import SAVES, SIDE
from bench.encoder import TOKENS, VOCABULARY, save_encoder
from bench.graph import CLASSES

onnxruntime.set_default_logger_severity(3)  # the cut network does not use its classifier
_KINDS = 10
_TO_FIT = 300
_TILES = 2  # of a picture on a side
_WORDS = 20  # that the texts of a class prefer
_OF_CLASS = 0.5  # share of the words of a text that are of its class
_RIDGE = 1e-3


def records_file(network: Path) -> Path:
    """Return the file with records for a network."""
    return network.with_name(f"{network.stem}-records.npy")


def save_fitted(name: str, directory: Path, count: int) -> Path:
    """Write a network with a fitted classifier, print how often it is right, and return a file with so many other records."""
    save, made = NETWORKS[name]
    save(directory)
    file = directory / f"{name}.onnx"
    model = onnx.load(str(file))
    records, kinds = made(_TO_FIT, 1)
    features = _features(model, records)
    scale = features.std() or 1.0
    centred = (features - features.mean(axis=0)) / scale
    wanted = np.eye(_KINDS, dtype=np.float32)[kinds] - 1 / _KINDS
    # Ridge regression in its dual form: there are more features than records.
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
    records, kinds = made(count, 2)
    session: Any = onnxruntime.InferenceSession(str(file))
    (taken,) = session.get_inputs()
    tried = list(zip(records[:100], kinds, strict=False))
    right = np.mean([session.run(None, {taken.name: each[None]})[0].argmax() == kind for each, kind in tried])
    print(f"{name}: {right:.0%} of the records are classified right in float32")
    data = records_file(file)
    np.save(data, records)
    return data


def texts(count: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return texts (count, tokens) of a few classes, and their classes. Each class has its words, among words of all."""
    words = np.random.default_rng(0).integers(0, VOCABULARY, (_KINDS, _WORDS))
    random = np.random.default_rng(seed)
    kinds = random.integers(0, _KINDS, count)
    own = words[kinds[:, None], random.integers(0, _WORDS, (count, TOKENS))]
    any_words = random.integers(0, VOCABULARY, (count, TOKENS))
    return np.where(random.random((count, TOKENS)) < _OF_CLASS, own, any_words), kinds


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


def _features(model: Any, records: NDArray[Any]) -> NDArray[np.float32]:
    """Return what goes into the classifier."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    flat = cut.graph.node[-1].input[0]
    del cut.graph.node[-1]
    del cut.graph.output[:]
    cut.graph.output.append(onnx.helper.make_tensor_value_info(flat, onnx.TensorProto.FLOAT, None))
    session: Any = onnxruntime.InferenceSession(cut.SerializeToString())
    (taken,) = session.get_inputs()
    return np.concatenate([session.run(None, {taken.name: each[None]})[0] for each in records])


NETWORKS: dict[str, tuple[Callable[[Path], None], Callable[[int, int], tuple[NDArray[Any], NDArray[np.int64]]]]] = {
    "mobilenetv2": (SAVES["mobilenetv2"], _pictures),
    "resnet50": (SAVES["resnet50"], _pictures),
    "encoder": (save_encoder, texts),
}
"""By name: the function that writes the network, and the one that makes its records of a count and a seed."""
