"""Texts of different length through a transformer encoder, with padding and without, beside the encoder's own answers.

The encoder (TorchScript, random weights) takes ids and a mask, and gives the mean of the words' vectors. Both nodes have one
worker, and serve the same texts, of 5 to 200 words, in turns. Without padding, only texts of equal length share a batch. The
wider the encoder, the nearer a text alone comes to the speed of a batch.

python -m bench.padding --width 16 32 64 128
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.stage import Stage, stage
from cluster_serving.client import InputQueue

_PORT = 26393
_WORDS, _HEADS, _LAYERS = 5_000, 2, 2
_SHORTEST, _LONGEST = 5, 200
_BATCH, _THREADS = 32, 2

Text = NDArray[np.int64]


class _Layer(nn.Module):
    """Attention and two dense layers, each with a residual and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projections = nn.Linear(width, 3 * width)
        self.attended = nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads = _HEADS

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        rows, words, width = x.shape
        split = self.projections(x).view(rows, words, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(split[0], split[1], split[2], mask[:, None, None, :])
        x = self.before(x + self.attended(attended.transpose(1, 2).reshape(rows, words, width)))
        after: Tensor = self.after(x + self.dense(x))
        return after


class _Encoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, width)
        self.layers = nn.ModuleList([_Layer(width) for _ in range(_LAYERS)])

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        heeded = mask != 0
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, heeded)
        weights = heeded.to(x.dtype)[:, :, None]
        mean: Tensor = (x * weights).sum(1) / weights.sum(1)
        return mean


def main() -> None:
    """Print texts a second of both nodes, their ratio, and the largest difference from the encoder's own answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, nargs="+", default=[32], help="of the encoder's vectors; 32")
    options = parser.parse_args()
    random = np.random.default_rng(1)
    texts = [random.integers(0, _WORDS, length) for length in random.integers(_SHORTEST, _LONGEST + 1, options.texts)]
    with stage(_PORT) as place:
        for width in options.width:
            torch.manual_seed(1)
            encoder = _Encoder(width).eval()
            _save(encoder, place.directory / "encoder.pt")
            print(f"width {width}: {_compared(place, encoder, texts, options.rounds)}", flush=True)


def _compared(place: Stage, encoder: _Encoder, texts: list[Text], rounds: int) -> str:
    rates: dict[str, list[float]] = {"padded": [], "apart": []}
    expected = [_own(encoder, text) for text in texts]
    difference = 0.0
    with ExitStack() as nodes:
        for job, padding in {"padded": {"ids": 0, "mask": 0}, "apart": None}.items():
            nodes.enter_context(place.node(job, **_settings(place.directory / "encoder.pt"), padding=padding))
        for number in range(rounds + 1):
            for job, found in rates.items():
                rate, answers = _serve(job, texts)
                if number:  # the first round warms both nodes up
                    found.append(rate)
                difference = max(difference, *(np.abs(a - b).max() for a, b in zip(answers, expected, strict=True)))
        batching = place.heartbeat("padded")["batching"]
    padded, apart = map(statistics.median, rates.values())
    ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
    return (
        f"{padded:.0f} texts/s with padding, {apart:.0f} without, {ratio:.1f} times; largest difference from the encoder alone "
        f"{difference:.1g}; {batching}"
    )


def _save(encoder: _Encoder, path: Path) -> None:
    script: Any = torch.jit.script
    script(encoder).save(str(path))


def _settings(path: Path) -> Mapping[str, Any]:
    return {
        "modelPath": str(path),
        "modelInputs": ["ids int64 [N,?]", "mask int64 [N,?]"],
        "modelParallelism": 1,
        "threadPerModel": _THREADS,
        "batchSize": _BATCH,
    }


def _own(encoder: _Encoder, text: Text) -> NDArray[np.float32]:
    with torch.inference_mode():
        answer: NDArray[np.float32] = encoder(torch.from_numpy(text)[None], torch.ones(1, len(text)))[0].numpy()
        return answer


def _serve(job: str, texts: list[Text]) -> tuple[float, list[NDArray[np.float32]]]:
    """Return texts per second, and the answers."""
    with InputQueue(port=_PORT, name=job) as queue:
        records = [{"ids": text, "mask": np.ones(len(text), np.int64)} for text in texts]
        begun_s = time.perf_counter()
        answers: list[Any] = list(queue.predict_many(records, window=len(records)))
        return len(texts) / (time.perf_counter() - begun_s), answers


if __name__ == "__main__":
    main()
