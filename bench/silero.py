"""Streams of audio through Silero VAD, served: one stream alone and 16 at once, beside the probabilities of its own package.

Every file of the package is served, and the client carries the state of each stream: the file as it is, and, if its batch dimension
is free, with `modelInputs` that say where it is. The module in the TorchScript file keeps the state of its only caller, so the
network in it is saved by itself.

pip install --no-deps --target FOLDER silero-vad && python -m bench.silero FOLDER
"""

import argparse
import asyncio
import sys
import time
import warnings
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from bench.stage import stage
from cluster_serving.client import AsyncInputQueue

_PORT = 26392
_RATE, _CHUNK, _CONTEXT = 16_000, 512, 64  # Hz, and samples
_STREAMS = 16
_WARM_UP = 20  # chunks
_X, _STATE, _SR = "input float32 [N,576]", "state float32 [2,N,128]", "sr int64 []"
_SETTINGS: Mapping[str, dict[str, Any]] = {
    "silero_vad.onnx": {"modelInputs": [_X, _STATE, _SR], "modelOutputs": ["output", "stateN float32 [2,N,128]"]},
    "silero_vad_16k_op15.onnx": {"modelInputs": [_X, _STATE, _SR]},
    "silero_vad_op18_ifless.onnx": {"modelInputs": [_X, _SR, _STATE]},
    "silero_vad.jit": {"modelInputs": ["x float32 [N,576]", _STATE]},
}

Audio = NDArray[np.float32]  # (streams, samples)
Probabilities = NDArray[np.float32]  # (streams, chunks)


class _Network(NamedTuple):
    """A network on disk, the name of its input of audio, the first state of a stream, and the inputs that stay the same."""

    path: Path
    audio: str
    state: dict[str, NDArray[np.float32]]
    constants: dict[str, NDArray[np.int64]]


def main() -> None:
    """Print a line for each file and configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="folder in which silero-vad is installed")
    parser.add_argument("--chunks", type=int, default=200, help="of each stream")
    parser.add_argument("--only", default="", help="files whose name contains this text")
    options = parser.parse_args()
    sys.path.append(str(options.package))
    audio = _audio(options.chunks)
    data = sorted((options.package / "silero_vad" / "data").iterdir())
    files = [file for file in data if file.suffix in (".onnx", ".jit") and options.only in file.name]
    with stage(_PORT) as place:
        for file in files:
            expected, network = _expected(file, audio), _network(file, place.directory)
            as_it_is: list[dict[str, Any]] = [{}] if network.path == file else []
            for settings in [*as_it_is, *([_SETTINGS[file.name]] if file.name in _SETTINGS else [])]:
                with place.node(
                    "silero", modelPath=str(network.path), modelParallelism=1, threadPerModel=1, **settings
                ):
                    alone, _ = asyncio.run(_serve(place.port, network, audio[:1]))
                    together, found = asyncio.run(_serve(place.port, network, audio))
                    batching = place.heartbeat("silero")["batching"]
                print(
                    f"{file.name}, {'modelInputs' if settings else 'as it is'}: {alone:.0f} chunks/s of one stream, "
                    f"{together:.0f} of {_STREAMS}: {together / alone:.1f} times; largest difference "
                    f"{np.abs(found - expected).max():.1g}; {batching}",
                    flush=True,
                )


def _audio(chunks: int) -> Audio:
    """Return streams of voices that rise and fall, and noise."""
    random = np.random.default_rng(1)
    at_s = np.arange(chunks * _CHUNK) / _RATE
    pitch_hz, swell_hz = random.uniform(90, 250, (_STREAMS, 1)), random.uniform(1, 4, (_STREAMS, 1))
    voices = (
        sum(np.sin(2 * np.pi * pitch_hz * k * at_s) / k for k in range(1, 20)) * np.sin(np.pi * swell_hz * at_s) ** 2
    )
    audio: Audio = (0.1 * voices + 0.01 * random.standard_normal(voices.shape)).astype(np.float32)
    return audio


def _expected(file: Path, audio: Audio) -> Probabilities:
    """Return the probabilities that the package gives, one stream after the other."""
    if "sequence" in file.name:
        sequence: Any = import_module("silero_vad.sequence_vad").SileroVADSequence(str(file))
        return np.stack([sequence.audio_forward(stream) for stream in audio])
    package: Any = import_module("silero_vad.utils_vad")
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # the package's, of the rates that a file takes
        model: Any = package.init_jit_model(str(file)) if file.suffix == ".jit" else package.OnnxWrapper(str(file))
        if file.suffix == ".onnx":
            model.session = _WithoutRate(model.session)
        return np.concatenate([model.audio_forward(torch.from_numpy(stream)[None], _RATE).numpy() for stream in audio])


class _WithoutRate:
    """A session that is given the rate also if the file takes none, as the package's class does."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._names = {each.name for each in session.get_inputs()}

    def run(self, outputs: None, inputs: Mapping[str, Any]) -> Any:
        return self._session.run(outputs, {name: inputs[name] for name in self._names})


def _network(file: Path, directory: Path) -> _Network:
    if file.suffix == ".jit":
        path = directory / "silero_16k.pt"
        jit: Any = torch.jit
        jit.load(str(file))._model.save(str(path))
        return _Network(path, "x", {"state": np.zeros((2, 1, 128), np.float32)}, {})
    first, *rest = ort.InferenceSession(str(file)).get_inputs()
    shapes = {each.name: [1 if isinstance(dim, str | None) else dim for dim in each.shape] for each in rest}
    rate = {"sr": np.array(_RATE)} if "sr" in shapes else {}
    state = {name: np.zeros(shape, np.float32) for name, shape in shapes.items() if name not in rate}
    return _Network(file, first.name, state, rate)


async def _serve(port: int, network: _Network, audio: Audio) -> tuple[float, Probabilities]:
    """Return chunks per second, and the probabilities. A stream sends its next chunk when the last one is answered."""
    async with AsyncInputQueue(port=port, name="silero") as queue:
        chunks = audio.shape[1] // _CHUNK

        async def stream(samples: NDArray[np.float32], count: int) -> list[float]:
            context, state, found = np.zeros(_CONTEXT, np.float32), network.state, list[float]()
            for chunk in samples.reshape(-1, _CHUNK)[:count]:
                record = {network.audio: np.concatenate([context, chunk])[None], **state, **network.constants}
                probability, *after = await queue.predict(record)
                context, state = chunk[-_CONTEXT:], dict(zip(network.state, after, strict=True))
                found.append(probability.item())
            return found

        await asyncio.gather(*(stream(each, min(_WARM_UP, chunks)) for each in audio))
        begun_s = time.perf_counter()
        found = await asyncio.gather(*(stream(each, chunks) for each in audio))
        return audio.shape[0] * chunks / (time.perf_counter() - begun_s), np.array(found, np.float32)


if __name__ == "__main__":
    main()
