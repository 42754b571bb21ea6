"""A transformer encoder of the size of BERT-small as an ONNX file, with seeded random weights: of real size, without a download.

4 layers, 512 numbers a token, 8 heads, 2048 inside (arXiv:1908.08962), with the norms behind the sums (arXiv:1810.04805). Input
`tokens` int64 [N,64] of a vocabulary of 30,522; output `logits` float32 [N,1000], of the mean of all tokens.
"""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from bench.graph import CLASSES, Graph

TOKENS = 64
VOCABULARY = 30_522
_LAYERS, _WIDTH, _HEADS, _INNER = 4, 512, 8, 2048
_HEAD_WIDTH = _WIDTH // _HEADS


class _Encoder(Graph):
    """A graph of an encoder; each method appends a part and returns the name of its output."""

    def __init__(self) -> None:
        super().__init__("encoder")
        self._random = np.random.default_rng(0)
        self._split = self._constant("split", np.array([0, 0, _HEADS, _HEAD_WIDTH], np.int64))
        self._joined = self._constant("joined", np.array([0, 0, _WIDTH], np.int64))

    def embedded(self) -> str:
        """The tokens and their places as vectors."""
        words = self._constant("words", self._normal((VOCABULARY, _WIDTH), 1.0))
        places = self._constant("places", self._normal((TOKENS, _WIDTH), 0.3))
        return self._normed(self._append("Add", [self._append("Gather", [words, "tokens"]), places]))

    def layer(self, source: str) -> str:
        """Attention, and two dense layers, each added to its input."""
        mixed = self._normed(self._append("Add", [source, self._attention(source)]))
        inner = self._dense(mixed, _WIDTH, _INNER)
        scaled = self._append("Mul", [inner, self._factor(math.sqrt(0.5))])
        gate = self._append("Add", [self._append("Erf", [scaled]), self._factor(1.0)])
        active = self._append("Mul", [self._append("Mul", [inner, gate]), self._factor(0.5)])  # GELU
        return self._normed(self._append("Add", [mixed, self._dense(active, _INNER, _WIDTH)]))

    def save(self, source: str, directory: Path) -> None:
        """The classifier on the mean of the tokens, and the file `encoder.onnx` in this directory, which is made."""
        mean = self._append("ReduceMean", [source], axes=[1], keepdims=0)
        weights = self._normal((CLASSES, _WIDTH), _WIDTH**-0.5)
        self._write(mean, weights, ("tokens", TensorProto.INT64, [TOKENS]), directory)

    def _attention(self, source: str) -> str:
        query, key, value = (
            self._heads(self._dense(source, _WIDTH, _WIDTH), turned) for turned in (False, True, False)
        )
        scores = self._append("Mul", [self._append("MatMul", [query, key]), self._factor(_HEAD_WIDTH**-0.5)])
        mixed = self._append("MatMul", [self._append("Softmax", [scores], axis=-1), value])
        joined = self._append("Reshape", [self._append("Transpose", [mixed], perm=[0, 2, 1, 3]), self._joined])
        return self._dense(joined, _WIDTH, _WIDTH)

    def _heads(self, source: str, turned: bool) -> str:
        order = [0, 2, 3, 1] if turned else [0, 2, 1, 3]
        return self._append("Transpose", [self._append("Reshape", [source, self._split])], perm=order)

    def _dense(self, source: str, inside: int, outside: int) -> str:
        number = len(self._nodes)
        weight = self._constant(f"weight{number}", self._normal((inside, outside), inside**-0.5))
        bias = self._constant(f"bias{number}", np.zeros(outside, np.float32))
        return self._append("Add", [self._append("MatMul", [source, weight]), bias])

    def _normed(self, source: str) -> str:
        number = len(self._nodes)
        scale = self._constant(f"scale{number}", np.ones(_WIDTH, np.float32))
        shift = self._constant(f"shift{number}", np.zeros(_WIDTH, np.float32))
        return self._append("LayerNormalization", [source, scale, shift])

    def _normal(self, shape: tuple[int, ...], spread: float) -> NDArray[np.float32]:
        return self._random.standard_normal(shape, np.float32) * np.float32(spread)

    def _factor(self, value: float) -> str:
        return self._number(f"number{len(self._weights)}", value)


def save_encoder(directory: Path) -> None:
    """Write `encoder.onnx`, 116 MB, into this directory."""
    net = _Encoder()
    last = net.embedded()
    for _ in range(_LAYERS):
        last = net.layer(last)
    net.save(last, directory)
