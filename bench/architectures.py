"""ResNet-50 (v1.5) and MobileNetV2 (1.0) as ONNX files, with seeded random weights: models of real size without a download.

    python -m bench.architectures DIR [--model resnet50]

Input `image` float32 [N,3,224,224], pixels of 0 to 255; output `logits` float32 [N,1000]. The layers are those of the papers
(arXiv:1512.03385 with the stride in the 3 x 3 convolution; arXiv:1801.04381), batch norms folded into their convolutions.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bench import report
from bench.graph import CLASSES, Graph
from bench.mlp import save_mlp

SIDE = 224

_PIXEL_SPREAD = np.float32(64)
_RESNET_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Inner channels, blocks, stride of the first block."""
_MOBILENET_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks, stride of the first block."""
_BRANCH_SCALE = 0.3
"""Factor on a branch that is added to its block's input, so that the sum does not grow from block to block."""
_NARROW_SCALE = 0.6
"""Factor on a branch of MobileNetV2 that is not added: fewer values reach the 6 where its activation ends."""


class _Network(Graph):
    """A graph of convolutions; each method appends a layer and returns the name of its output."""

    def __init__(self, name: str, activation: str) -> None:
        super().__init__(name)
        self._activation = activation
        self._random = np.random.default_rng(0)
        clips = activation == "Clip"
        self._limits = [self._number("least", 0), self._number("most", 6)] if clips else []

    def first(self, channels: int, size: int) -> str:
        """The convolution that takes the image, with the spread of pixels folded in."""
        weight = self._scaled((channels, 3, size, size)) / _PIXEL_SPREAD
        return self._active(self._convolve("image", weight, np.zeros(channels, np.float32), stride=2, groups=1))

    def conv(self, source: str, shape: tuple[int, int, int], *, stride: int = 1, depthwise: bool = False) -> str:
        """A convolution and the activation. `shape`: channels in and out, and the kernel's size."""
        inside, outside, size = shape
        weight = self._scaled((outside, 1 if depthwise else inside, size, size))
        bias = np.zeros(outside, np.float32)
        return self._active(self._convolve(source, weight, bias, stride, inside if depthwise else 1))

    def linear(self, source: str, inside: int, outside: int, *, stride: int = 1, scale: float = 1.0) -> str:
        """A 1 x 1 convolution without an activation."""
        weight = self._scaled((outside, inside, 1, 1)) * np.float32(scale)
        return self._convolve(source, weight, np.zeros(outside, np.float32), stride, 1)

    def max_pool(self, source: str) -> str:
        """3 x 3, stride 2."""
        return self._append("MaxPool", [source], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])

    def add(self, left: str, right: str, *, active: bool) -> str:
        """The end of a residual block."""
        total = self._append("Add", [left, right])
        return self._active(total) if active else total

    def save(self, source: str, channels: int, directory: Path) -> None:
        """The classifier on the mean of each channel, and the file `NAME.onnx` in this directory, which is made."""
        flat = self._append("Flatten", [self._append("GlobalAveragePool", [source])])
        self._write(flat, self._scaled((CLASSES, channels)), ("image", TensorProto.FLOAT, [3, SIDE, SIDE]), directory)

    def _scaled(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        # Half of a filter's mean is left: with all of it pictures come to look alike, and without any, roundings grow from layer to
        # layer until bfloat16 gives another answer. As He scales for activations: 2.6 is 1 over the variance that one leaves.
        fan_in = int(np.prod(shape[1:]))
        weight = self._random.standard_normal(shape, np.float32) * np.float32((2.6 / fan_in) ** 0.5)
        scaled: NDArray[np.float32] = weight - weight.mean(axis=tuple(range(1, len(shape))), keepdims=True) / 2
        return scaled

    def _convolve(
        self, source: str, weight: NDArray[np.float32], bias: NDArray[np.float32], stride: int, groups: int
    ) -> str:
        number = len(self._nodes)
        names = [self._constant(f"weight{number}", weight), self._constant(f"bias{number}", bias)]
        pad = weight.shape[-1] // 2
        return self._append("Conv", [source, *names], strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def _active(self, source: str) -> str:
        return self._append(self._activation, [source, *self._limits])


def save_resnet50(directory: Path) -> None:
    """Write `resnet50.onnx`, 102 MB, into this directory."""
    net = _Network("resnet50", "Relu")
    last, channels = net.max_pool(net.first(64, 7)), 64
    for inner, blocks, first_stride in _RESNET_STAGES:
        for block in range(blocks):
            stride = 1 if block else first_stride
            hidden = net.conv(last, (channels, inner, 1))
            hidden = net.conv(hidden, (inner, inner, 3), stride=stride)
            branch = net.linear(hidden, inner, 4 * inner, scale=_BRANCH_SCALE)
            if block == 0:
                last = net.linear(last, channels, 4 * inner, stride=stride)
            last, channels = net.add(last, branch, active=True), 4 * inner
    net.save(last, channels, directory)


def save_mobilenetv2(directory: Path) -> None:
    """Write `mobilenetv2.onnx`, 14 MB, into this directory."""
    net = _Network("mobilenetv2", "Clip")
    last, channels = net.first(32, 3), 32
    for expansion, outside, blocks, first_stride in _MOBILENET_STAGES:
        for block in range(blocks):
            stride, inner = 1 if block else first_stride, channels * expansion
            hidden = net.conv(last, (channels, inner, 1)) if expansion > 1 else last
            hidden = net.conv(hidden, (inner, inner, 3), stride=stride, depthwise=True)
            branch = net.linear(hidden, inner, outside, scale=_BRANCH_SCALE if block else _NARROW_SCALE)
            last, channels = net.add(last, branch, active=False) if block else branch, outside
    net.save(net.conv(last, (channels, 1280, 1)), 1280, directory)


SAVES: dict[str, Callable[[Path], None]] = {
    "mlp": save_mlp,
    "mobilenetv2": save_mobilenetv2,
    "resnet50": save_resnet50,
}


def main() -> None:
    """Write what is asked for, each model into a folder of its own name."""
    parser = argparse.ArgumentParser(description=report.first_line(__doc__))
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--model", choices=SAVES, help="this one alone")
    options = parser.parse_args()
    for name in [options.model] if options.model else SAVES:
        options.directory.mkdir(parents=True, exist_ok=True)
        SAVES[name](options.directory / name)
        print(options.directory / name)


if __name__ == "__main__":
    main()
