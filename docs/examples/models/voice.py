"""Make `voice/`: a network that hears voices, with the inputs and outputs of Silero VAD, and recordings of it.

A voice has harmonics, and noise has none: the network compares the mean of the spectrum with its geometric mean. What it has
heard before is its state, which the caller keeps. The recordings have voices and noise that were computed, and `voice/said.txt`
has the seconds between which somebody speaks.
"""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnx_file import save

RATE, CHUNK, CONTEXT, SECONDS = 16_000, 512, 64, 6
SPOKEN = ((0.8, 2.0, 3.1, 4.7), (1.5, 4.0), (0.5, 1.2, 2.2, 2.9, 4.4, 5.5))  # seconds: begin, end, begin, end
GRAPH = f"""
vad (float[batch, {CONTEXT + CHUNK}] input, float[2, batch, 128] state, int64 sr)
    => (float[batch, 1] output, float[2, batch, 128] stateN)
{{
    real = MatMul(input, cosines)
    imaginary = MatMul(input, sines)
    real_squared = Mul(real, real)
    imaginary_squared = Mul(imaginary, imaginary)
    squared = Add(real_squared, imaginary_squared)
    power = Add(squared, least)
    rate = Cast<to = 1>(sr)
    hertz = Mul(cycles, rate)
    above = Greater(hertz, lowest)
    below = Less(hertz, highest)
    is_speech = And(above, below)
    band = Cast<to = 1>(is_speech)
    width = ReduceSum(band)
    speech = Mul(power, band)
    sum = ReduceSum(speech, last)
    mean = Div(sum, width)
    log_of_mean = Log(mean)
    logs = Log(power)
    speech_logs = Mul(logs, band)
    sum_of_logs = ReduceSum(speech_logs, last)
    mean_of_logs = Div(sum_of_logs, width)
    harmonic = Sub(log_of_mean, mean_of_logs)
    centred = Sub(harmonic, middle)
    now = Mul(centred, steepness)
    heard = Slice(state, begin, end, axes)
    before = Squeeze(heard, first)
    fading = Mul(before, memory)
    smooth = Add(fading, now)
    output = Sigmoid(smooth)
    row = Unsqueeze(smooth, first)
    stateN = Pad(row, padding)
}}
"""


def main() -> None:
    """Make the folder here."""
    samples = np.arange(CONTEXT + CHUNK)
    window = np.concatenate((np.zeros(CONTEXT), np.hanning(CHUNK)))
    angles = 2 * np.pi * samples[:, None] * np.arange(CHUNK // 2) / CHUNK
    waves = {"cosines": window[:, None] * np.cos(angles), "sines": window[:, None] * np.sin(angles)}
    numbers = {"least": 1e-9, "lowest": 200, "highest": 3400, "middle": 1.5, "steepness": 1.5, "memory": 0.6}
    places = {
        "last": [1],
        "first": [0],
        "begin": [0, 0],
        "end": [1, 1],
        "axes": [0, 2],
        "padding": [0, 0, 0, 1, 0, 127],
    }
    save(
        Path("voice/model/voice.onnx"),
        GRAPH,
        cycles=(np.arange(CHUNK // 2) / CHUNK).astype(np.float32),
        **{name: array.astype(np.float32) for name, array in waves.items()},
        **{name: np.array(number, np.float32) for name, number in numbers.items()},
        **{name: np.array(indices, np.int64) for name, indices in places.items()},
    )
    for number, spoken in enumerate(SPOKEN):
        with wave.open(f"voice/call-{number + 1}.wav", "wb") as file:
            file.setparams((1, 2, RATE, 0, "NONE", ""))
            file.writeframes((recording(number, spoken) * 32767).astype("<i2").tobytes())
    lines = (" ".join(f"{begin}-{end}" for begin, end in zip(each[::2], each[1::2], strict=True)) for each in SPOKEN)
    Path("voice/said.txt").write_text("\n".join(lines) + "\n")
    print(f"voice: {len(SPOKEN)} recordings of {SECONDS} s")


def recording(seed: int, spoken: tuple[float, ...]) -> NDArray[np.float64]:
    """Return float64 [samples] in -1..1: noise, a voice from each begin to its end, and a louder noise at the end."""
    random = np.random.default_rng(seed)
    at_s = np.arange(SECONDS * RATE) / RATE
    pitch_hz = random.uniform(100, 220) * (1 + 0.1 * np.sin(2 * np.pi * 2 * at_s))
    phase = 2 * np.pi * np.cumsum(pitch_hz) / RATE
    voice = sum(np.sin(k * phase) / k**0.7 for k in range(1, 16)) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * at_s))
    speaks = sum((at_s >= begin) & (at_s < end) for begin, end in zip(spoken[::2], spoken[1::2], strict=True))
    noise = random.standard_normal(len(at_s)) * np.where(at_s > SECONDS - 0.4, 0.1, 0.005)
    sound: NDArray[np.float64] = np.clip(0.1 * voice * speaks + noise, -1, 1)
    return sound


if __name__ == "__main__":
    main()
