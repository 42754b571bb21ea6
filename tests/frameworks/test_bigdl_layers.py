"""Layers of BigDL whose rules are its own: axes from 1, tables, batches of one. numpy works out what they should give."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.node.models.base import Array, LoadOptions
from cluster_serving.node.models.detect import detect, load
from support.bigdl import ModelFile

RNG = np.random.default_rng(11)
ROWS = RNG.normal(size=(2, 3)).astype(np.float32)
CUBE = RNG.normal(size=(2, 3, 4)).astype(np.float32)
IMAGES = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
CLIPS = RNG.normal(size=(2, 1, 2, 3, 2)).astype(np.float32)
KERAS_INTERNAL = "com.intel.analytics.zoo.pipeline.api.keras.layers.internal."


class Bench:
    """Saves a model of one layer and runs it."""

    def __init__(self, directory: Path) -> None:
        self.file = ModelFile()
        self._directory = directory

    def run(self, layer: Any, *arrays: Array) -> list[Array]:
        """The outputs of a layer, which leaves its inputs as they were: it reads them in place."""
        path = self.file.save(self._directory / "layer.model", self.file.module("Sequential", layer))
        model = load(detect(str(path)), LoadOptions())
        batch = {f"input{at}" if len(arrays) > 1 else "input": each.copy() for at, each in enumerate(arrays)}
        outputs = list(model.run(batch).values())
        for given, kept in zip(arrays, batch.values(), strict=True):
            np.testing.assert_array_equal(kept, given)
        return outputs

    def check(self, layer: Any, arrays: tuple[Array, ...], *expected: Any) -> None:
        """Assert what a layer gives."""
        for found, wanted in zip(self.run(layer, *arrays), expected, strict=True):
            assert found.shape == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def softmax(values: Array, axis: int) -> Array:
    powers: Array = np.exp(values - values.max(axis, keepdims=True))
    shares: Array = powers / powers.sum(axis, keepdims=True)
    return shares


SHAPES: list[tuple[str, dict[str, Any], Array, Any]] = [
    ("Reshape", {"size": [6], "batchMode": 0}, ROWS, ROWS.reshape(6)),  # the rows fill the size: BigDL drops the batch
    ("Reshape", {"size": [6], "batchMode": 0}, CUBE[:, :, :2], CUBE[:, :, :2].reshape(2, 6)),
    ("Reshape", {"size": [3], "batchMode": 0}, ROWS[:1], ROWS[:1]),
    ("Reshape", {"size": [3, 2], "batchMode": 1}, ROWS, ROWS.reshape(3, 2)),
    ("View", {"sizes": [12]}, CUBE, CUBE.reshape(2, 12)),
    ("View", {"sizes": [12]}, CUBE[:1], CUBE[:1].reshape(1, 12)),
    ("View", {"sizes": [-1, 4]}, CUBE, CUBE.reshape(6, 4)),
    ("InferReshape", {"size": [0, -1], "batchMode": False}, CUBE, CUBE.reshape(2, 12)),
    ("InferReshape", {"size": [4, -1], "batchMode": True}, CUBE, CUBE.reshape(2, 4, 3)),
    ("Select", {"dimension": -1, "index": -1}, CUBE, CUBE[:, :, -1]),
    ("Narrow", {"dimension": 3, "offset": 2, "length": -1}, CUBE, CUBE[:, :, 1:]),
    ("Narrow", {"dimension": 3, "offset": 2, "length": -2}, CUBE, CUBE[:, :, 1:3]),
    ("Squeeze", {}, CUBE[:1, :1], CUBE[:1, 0]),
    ("Squeeze", {"dims": [3, 2]}, CUBE[:, :1, :1], CUBE[:, 0, 0]),
    ("Squeeze", {"dims": [1], "batchMode": True}, CUBE[:, :1], CUBE[:, 0]),
    ("Unsqueeze", {"pos": [1, 2], "numInputDims": 2}, CUBE, CUBE[:, None, :, None]),
    ("Unsqueeze", {"pos": 0}, ROWS, ROWS[:, :, None]),
    ("Replicate", {"nFeatures": 2, "dim": 1, "nDim": 1}, ROWS, np.stack([ROWS, ROWS], 1)),
    ("Padding", {"dim": 1, "pad": -2, "nInputDim": 1}, ROWS, np.pad(ROWS, [(0, 0), (2, 0)])),
    ("Padding", {"dim": 1, "pad": 1, "nInputDim": 1, "nIndex": 2}, ROWS, np.insert(ROWS, 2, 0, 1)),
    ("Max", {"dim": 1, "numInputDims": 2}, CUBE, CUBE.max(1)),
    ("Sum", {"dimension": -1, "nInputDims": -1, "sizeAverage": True, "squeeze": True}, CUBE, CUBE.mean(2)),
    ("SoftMax", {}, CUBE, softmax(CUBE, 0)),
    ("SoftMax", {"pos": 2}, CUBE, softmax(CUBE, 2)),
    ("SoftMin", {}, ROWS, softmax(-ROWS, 1)),
    ("SpatialDropout3D", {"initP": 0.25}, CLIPS, CLIPS * 0.75),
    ("Dropout", {"initP": 0.25, "scale": False}, ROWS, ROWS * 0.75),
    ("Normalize", {"p": float("inf")}, ROWS, ROWS / np.abs(ROWS).max(1, keepdims=True)),
    ("Cropping2D", {"heightCrop": [1, 0], "widthCrop": [0, 2], "dataFormat": "NHWC"}, IMAGES, IMAGES[:, 1:, :3]),
    (
        "SpatialZeroPadding",
        {"padLeft": -1, "padBottom": 1},
        IMAGES,
        np.pad(IMAGES[..., 1:], [(0, 0)] * 2 + [(0, 1), (0, 0)]),
    ),
    ("UpSampling3D", {"size": [1, 2, 2]}, CLIPS, CLIPS.repeat(2, 3).repeat(2, 4)),
    ("TemporalMaxPooling", {"kW": -1, "dW": -1}, CUBE, CUBE.max(1, keepdims=True)),
    ("InternalMax", {"dim": 2, "returnValue": False}, ROWS, ROWS.argmax(1) + 1.0),
    ("InternalExpand", {"tgtSizes": [-1, 2, 3]}, ROWS[:, None], np.stack([ROWS, ROWS], 1)),
    ("InternalSoftMax", {}, CUBE, softmax(CUBE, 2)),
]


@pytest.mark.parametrize(("name", "attributes", "given", "expected"), SHAPES, ids=[each[0] for each in SHAPES])
def test_a_layer_of_one_tensor(
    bench: Bench, name: str, attributes: dict[str, Any], given: Array, expected: Array
) -> None:
    full = KERAS_INTERNAL + name if name.startswith("Internal") else name

    bench.check(bench.file.module(full, attributes=attributes), (given,), expected)


A, B, C = (RNG.normal(size=(2, 3)).astype(np.float32) for _ in range(3))
M = RNG.normal(size=(2, 4, 3)).astype(np.float32)
TABLES: list[tuple[str, dict[str, Any], tuple[Array, ...], Any]] = [
    ("CrossProduct", {}, (A, B, C), np.stack([(A * B).sum(1), (A * C).sum(1), (B * C).sum(1)], 1)),
    ("MV", {"trans": False}, (M, A), np.einsum("nij,nj->ni", M, A)),
    ("InternalMM", {"transA": True}, (M, M), np.einsum("nji,njk->nik", M, M)),
    ("PairwiseDistance", {"norm": 1}, (A, B), np.abs(A - B).sum(1)),
    ("SelectTable", {"index": -1}, (A, B, C), B),  # the last but one
    ("Pack", {"dimension": 1}, (A, B), np.stack([A, B])),
    ("JoinTable", {"dimension": -1, "nInputDims": 2}, (A, B), np.concatenate([A, B], 1)),
    ("JoinTable", {"dimension": 1, "nInputDims": 1}, (A, B), np.concatenate([A, B], 1)),
    ("Index", {"dimension": 2}, (A, np.array([3, 1], np.float32)), A[:, [2, 0]]),
    ("MixtureTable", {}, (A[:, :2], M[:, :2]), np.einsum("ne,nef->nf", A[:, :2], M[:, :2])),
    ("InternalCMulTable", {}, (A, B, C), A * B * C),
]


@pytest.mark.parametrize(("name", "attributes", "given", "expected"), TABLES, ids=[each[0] for each in TABLES])
def test_a_layer_of_a_table(
    bench: Bench, name: str, attributes: dict[str, Any], given: tuple[Array, ...], expected: Array
) -> None:
    full = KERAS_INTERNAL + name if name.startswith("Internal") else name

    bench.check(bench.file.module(full, attributes=attributes), given, expected)


def test_a_table_is_split_and_narrowed(bench: Bench) -> None:
    file = bench.file
    split = file.module("SplitTable", attributes={"dimension": 1, "nInputDims": 1})
    narrow = file.module("NarrowTable", attributes={"offset": 2, "length": -1})

    bench.check(file.module("Sequential", split, narrow), (ROWS,), ROWS[:, 1], ROWS[:, 2])


def test_an_even_split_into_tensors(bench: Bench) -> None:
    layer = bench.file.module(KERAS_INTERNAL + "InternalSplitTensor", attributes={"dimension": 3, "num": 2})

    bench.check(layer, (CUBE,), CUBE[:, :, :2], CUBE[:, :, 2:])


SLOPES = B[0].reshape(3, 1, 1)
PRODUCT = RNG.normal(size=(2, 3, 4)).astype(np.float32)
WEIGHTS: list[tuple[str, dict[str, Any], list[Array], list[Array], Any]] = [
    (
        "Bilinear",
        {},
        [PRODUCT, A[0, :2]],
        [A, M[:, :, 0]],
        np.einsum("ni,oij,nj->no", A, PRODUCT, M[:, :, 0]) + A[0, :2],
    ),
    ("Euclidean", {}, [M[0].T], [A], np.linalg.norm(A[:, :, None] - M[0].T, axis=1)),
    ("Cosine", {}, [M[0]], [A], A @ M[0].T / np.linalg.norm(A, axis=1)[:, None] / np.linalg.norm(M[0], axis=1)),
    ("Maxout", {"maxoutNumber": 2, "outputSize": 2}, [M[0]], [A], (A @ M[0].T).reshape(2, 2, 2).max(1)),
    ("CMul", {}, [B[:1, :, None, None]], [A], A * B[0]),
    ("CAdd", {}, [B[0]], [IMAGES], IMAGES + SLOPES),
    ("PReLU", {"nOutputPlane": 3}, [B[0]], [IMAGES[0]], np.where(IMAGES[0] > 0, IMAGES[0], IMAGES[0] * SLOPES)),
    ("NormalizeScale", {"p": 1.0}, [B[0]], [A], A / np.abs(A).sum(1, keepdims=True) * B[0]),
    (
        "InternalLayerNorm",
        {"eps": 0.5},
        [B[:1], C[:1]],
        [A],
        (A - A.mean(1, keepdims=True)) / np.sqrt(A.var(1, keepdims=True) + 0.5) * B[0] + C[0],
    ),
]


@pytest.mark.parametrize(
    ("name", "attributes", "weights", "given", "expected"), WEIGHTS, ids=[each[0] for each in WEIGHTS]
)
def test_a_layer_with_weights(
    bench: Bench,
    name: str,
    attributes: dict[str, Any],
    weights: list[Array],
    given: list[Array],
    expected: Array,
) -> None:
    full = KERAS_INTERNAL + name if name.startswith("Internal") else name
    layer = bench.file.module(full, attributes=attributes, parameters=bench.file.weights(*weights))

    bench.check(layer, tuple(given), expected)


def test_srelu_bends_right_of_both_thresholds(bench: Bench) -> None:
    """The right threshold is as far from the left one as its magnitude says."""
    left, left_slope, distance, right_slope = (np.full(3, each) for each in (-0.5, 0.1, -0.8, 2.0))
    names = ("tLeft", "aLeft", "tRight", "aRight")
    tensors = bench.file.weights(left, left_slope, distance, right_slope)
    expected = np.where(ROWS <= -0.5, -0.5 + 0.1 * (ROWS + 0.5), ROWS)
    expected = np.where(ROWS >= 0.3, 0.3 + 2 * (ROWS - 0.3), expected)

    bench.check(bench.file.module("SReLU", attributes=dict(zip(names, tensors, strict=True))), (ROWS,), expected)


def test_ids_of_a_lookup_table_start_at_1_and_may_be_masked(bench: Bench) -> None:
    table = RNG.normal(size=(4, 2))
    limits = {"maxNorm": 0.5, "normType": 2.0, "maskZero": True, "paddingValue": 0.0}
    layer = bench.file.module("LookupTable", attributes=limits, parameters=bench.file.weights(table))
    norms = np.linalg.norm(table, axis=1, keepdims=True)
    short = np.where(norms > 0.5, table / norms * 0.5, table)

    bench.check(layer, (np.array([[1, 4], [0, 2]], np.float32),), [[short[0], short[3]], [np.zeros(2), short[1]]])


def test_bottle_folds_all_axes_in_front_of_a_row(bench: Bench) -> None:
    weight = RNG.normal(size=(2, 4))
    layer = bench.file.module("Bottle", bench.file.linear(weight), attributes={"nInputDim": 2})
    stacked = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)

    bench.check(layer, (stacked,), stacked @ weight.T)


def test_a_time_distributed_layer_may_mask_empty_steps(bench: Bench) -> None:
    steps = CUBE.copy()
    steps[1, 2] = 0
    weight, bias = RNG.normal(size=(2, 4)), np.ones(2)
    linear = bench.file.linear(weight, bias)
    layer = bench.file.module("TimeDistributed", attributes={"layer": linear, "maskZero": True})
    expected = steps @ weight.T + bias
    expected[1, 2] = 0

    bench.check(layer, (steps,), expected)
