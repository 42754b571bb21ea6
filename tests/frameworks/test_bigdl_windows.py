"""Windows of BigDL's convolutions and poolings, against loops over all places, and its recurrent layers, step by step."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from cluster_serving.node.models.base import Array, LoadOptions
from cluster_serving.node.models.detect import detect, load
from support.bigdl import ModelFile

RNG = np.random.default_rng(3)
IMAGES = RNG.normal(size=(2, 3, 5, 4)).astype(np.float32)
ZOO_RECURRENT = "com.intel.analytics.zoo.pipeline.api.keras.layers.internal.InternalRecurrent"
STEPS = RNG.normal(size=(2, 4, 3)).astype(np.float32)


@pytest.fixture
def file() -> ModelFile:
    return ModelFile()


def run(tmp_path: Path, file: ModelFile, layer: Any, given: ArrayLike) -> Array:
    path = file.save(tmp_path / "layer.model", file.module("Sequential", layer))
    model = load(detect(str(path)), LoadOptions())
    return model.run({"input": np.ascontiguousarray(given, np.float32)})["output"]


def slide(
    images: Array, kernel: int, stride: int, pads: tuple[int, int], window: Callable[[Array], Array], value: float = 0
) -> Array:
    """Apply `window` to (rows, channels, kernel, kernel) at each place of images padded before and after."""
    padded = np.pad(images, [(0, 0), (0, 0), pads, pads], constant_values=value)
    rows, columns = ((size - kernel) // stride + 1 for size in padded.shape[2:])
    out = [
        window(padded[:, :, row * stride : row * stride + kernel, column * stride : column * stride + kernel])
        for row, column in product(range(rows), range(columns))
    ]
    return np.stack(out, -1).reshape(*out[0].shape, rows, columns)


def numbers(kernel: int, stride: int, pad: int, *, prefixes: tuple[str, str], **more: Any) -> dict[str, Any]:
    sizes = dict(zip((*prefixes, "pad"), (kernel, stride, pad), strict=True))
    return {f"{prefix}{axis}": size for prefix, size in sizes.items() for axis in "WH"} | more


def test_same_padding_puts_the_smaller_half_first(tmp_path: Path, file: ModelFile) -> None:
    """With the channels last: an even input, and a stride of 2."""
    square = RNG.normal(size=(2, 3, 6, 6)).astype(np.float32)
    weight, bias = RNG.normal(size=(1, 3, 3, 3, 2)), RNG.normal(size=2)
    attributes = numbers(3, 2, -1, prefixes=("kernel", "stride"), nInputPlane=3, nOutputPlane=2, format="NHWC")
    layer = file.module("SpatialConvolution", attributes=attributes, parameters=file.weights(weight, bias))

    found = run(tmp_path, file, layer, square.transpose(0, 2, 3, 1))

    expected = slide(square, 3, 2, (0, 1), lambda patch: np.einsum("nchw,hwco->no", patch, weight[0]) + bias)
    np.testing.assert_allclose(found.transpose(0, 3, 1, 2), expected, atol=1e-5)


def test_a_window_in_the_padding_alone_is_dropped(tmp_path: Path, file: ModelFile) -> None:
    weight = RNG.normal(size=(1, 2, 3, 2, 2))
    attributes = numbers(2, 1, 2, prefixes=("kernel", "stride"), nInputPlane=3, nOutputPlane=2)
    layer = file.module("SpatialConvolution", attributes=attributes, parameters=file.weights(weight))

    expected = slide(IMAGES, 2, 1, (2, 1), lambda patch: np.einsum("nchw,ochw->no", patch, weight[0]))
    np.testing.assert_allclose(run(tmp_path, file, layer, IMAGES), expected, atol=1e-5)


@pytest.mark.parametrize(("pad", "pads"), [(-1, (0, 1)), (2, (2, 1))])
def test_a_maximum_over_padding_that_torch_does_not_know(
    tmp_path: Path, file: ModelFile, pad: int, pads: tuple[int, int]
) -> None:
    layer = file.module("SpatialMaxPooling", attributes=numbers(2, 1, pad, prefixes=("k", "d")))

    expected = slide(IMAGES, 2, 1, pads, lambda patch: patch.max((2, 3)), -np.inf)
    np.testing.assert_allclose(run(tmp_path, file, layer, IMAGES), expected)


@pytest.mark.parametrize("with_padding", [True, False])
def test_an_average_with_same_padding_counts_what_it_should(
    tmp_path: Path, file: ModelFile, with_padding: bool
) -> None:
    attributes = numbers(2, 1, -1, prefixes=("k", "d"), countIncludePad=with_padding)
    layer = file.module("SpatialAveragePooling", attributes=attributes)
    sums = slide(IMAGES, 2, 1, (0, 1), lambda patch: patch.sum((2, 3)))
    counts = slide(np.ones_like(IMAGES), 2, 1, (0, 1), lambda patch: patch.sum((2, 3)))

    expected = sums / (4 if with_padding else counts)
    np.testing.assert_allclose(run(tmp_path, file, layer, IMAGES), expected, atol=1e-6)


@pytest.mark.parametrize("last", [False, True])
def test_each_place_of_a_locally_connected_layer_has_its_weights(tmp_path: Path, file: ModelFile, last: bool) -> None:
    """The bias lies place by place in the file, and is added as if it lay channel by channel, unless the channels are last."""
    weight, bias = RNG.normal(size=(12, 2, 12)), RNG.normal(size=(12, 2))
    attributes = numbers(2, 1, 0, prefixes=("kernel", "stride"), nInputPlane=3, nOutputPlane=2)
    attributes |= {"inputHeight": 5, "inputWidth": 4, "format": "NHWC" if last else "NCHW"}
    layer = file.module("LocallyConnected2D", attributes=attributes, parameters=file.weights(weight, bias))

    found = run(tmp_path, file, layer, IMAGES.transpose(0, 2, 3, 1) if last else IMAGES)

    order = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    patches = slide(IMAGES, 2, 1, (0, 0), lambda patch: patch.transpose(order).reshape(2, -1)).reshape(2, 12, 12)
    expected = np.einsum("nfl,lof->nol", patches, weight) + (bias.T if last else bias.reshape(2, 12))
    shaped = expected.reshape(2, 2, 4, 3)
    np.testing.assert_allclose(found, shaped.transpose(0, 2, 3, 1) if last else shaped, atol=1e-5)


def test_each_frame_of_a_locally_connected_layer_has_its_weights(tmp_path: Path, file: ModelFile) -> None:
    weight, bias = RNG.normal(size=(3, 5, 6)), RNG.normal(size=(3, 5))
    attributes = {"kernelW": 2, "strideW": 1, "inputFrameSize": 3, "outputFrameSize": 5}
    layer = file.module("LocallyConnected1D", attributes=attributes, parameters=file.weights(weight, bias))

    expected = [weight[at] @ STEPS[:, at : at + 2].reshape(2, 6).T + bias[at][:, None] for at in range(3)]
    np.testing.assert_allclose(run(tmp_path, file, layer, STEPS), np.transpose(expected, (2, 0, 1)), atol=1e-5)


def test_a_volume_is_convolved_with_same_padding(tmp_path: Path, file: ModelFile) -> None:
    """A kernel of one in time and the images' own otherwise."""
    clips = RNG.normal(size=(2, 3, 2, 6, 6)).astype(np.float32)
    weight = RNG.normal(size=(2, 3, 1, 3, 3))
    attributes = numbers(3, 2, -1, prefixes=("k", "d"), kT=1, dT=1, padT=-1, nInputPlane=3, nOutputPlane=2)
    layer = file.module("VolumetricConvolution", attributes=attributes, parameters=file.weights(weight))

    found = run(tmp_path, file, layer, clips)

    for at in range(2):
        each = slide(clips[:, :, at], 3, 2, (0, 1), lambda patch: np.einsum("nchw,ochw->no", patch, weight[:, :, 0]))
        np.testing.assert_allclose(found[:, :, at], each, atol=1e-5)


def adding_cell(file: ModelFile, class_name: str, **attributes: Any) -> Any:
    """Output and first state: input plus first state. Of an LSTM's two states the second one is passed on."""
    total = file.module(
        "Sequential", file.module("NarrowTable", attributes={"offset": 1, "length": 2}), file.module("CAddTable")
    )
    state = total
    if "LSTM" in class_name:
        state = file.module("ConcatTable", total, file.module("SelectTable", attributes={"index": 3}))
    network = file.module("Sequential", file.module("FlattenTable"), file.module("ConcatTable", total, state))
    return file.module(class_name, attributes={"cell": network, **attributes})


def test_a_recurrent_layer_goes_from_state_to_state(tmp_path: Path, file: ModelFile) -> None:
    layer = file.module("Recurrent", attributes={"topology": adding_cell(file, "RnnCell", hiddenSize=3)})

    np.testing.assert_allclose(run(tmp_path, file, layer, STEPS), STEPS.cumsum(1), atol=1e-6)


def test_steps_are_prepared_at_once(tmp_path: Path, file: ModelFile) -> None:
    """Layers of Zoo may hold what prepares the steps, and the cell, as children."""
    doubling = file.module("TimeDistributed", attributes={"layer": file.linear(2 * np.eye(3))})
    layer = file.module(ZOO_RECURRENT, doubling, adding_cell(file, "RnnCell", hiddenSize=3))

    np.testing.assert_allclose(run(tmp_path, file, layer, STEPS), 2 * STEPS.cumsum(1), atol=1e-5)


def test_the_states_of_a_convolutional_lstm_are_images(tmp_path: Path, file: ModelFile) -> None:
    layer = file.module("Recurrent", attributes={"topology": adding_cell(file, "ConvLSTMPeephole", outputSize=3)})
    clips = RNG.normal(size=(2, 4, 3, 5, 6)).astype(np.float32)

    np.testing.assert_allclose(run(tmp_path, file, layer, clips), clips.cumsum(1), atol=1e-5)


def test_a_decoder_feeds_its_output_back(tmp_path: Path, file: ModelFile) -> None:
    cell = adding_cell(file, "LSTM", hiddenSize=3, preTopology=file.linear(2 * np.eye(3)))
    layer = file.module("RecurrentDecoder", cell, attributes={"seqLength": 3, "topology": cell})
    start = STEPS[:, 0]

    # 2 x; then 2 (2 x) + 2 x; then 2 (6 x) + 6 x
    np.testing.assert_allclose(
        run(tmp_path, file, layer, start), np.stack([2 * start, 6 * start, 18 * start], 1), atol=1e-5
    )


def test_stacked_cells_take_the_output_of_the_one_before(tmp_path: Path, file: ModelFile) -> None:
    cells = [adding_cell(file, "RnnCell", hiddenSize=3), adding_cell(file, "LSTM", hiddenSize=3)]
    layer = file.module("Recurrent", attributes={"topology": file.module("MultiRNNCell", attributes={"cells": cells})})

    np.testing.assert_allclose(run(tmp_path, file, layer, STEPS), STEPS.cumsum(1).cumsum(1), atol=1e-5)
