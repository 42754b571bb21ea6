"""Hear who speaks when in recordings that come as streams: `python voice_activity.py FILE.wav ...`."""

import argparse
import asyncio
import wave
from collections.abc import Iterator
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from cluster_serving.client import AsyncInputQueue

RATE, CHUNK, CONTEXT = 16_000, 512, 64  # Hz, and samples
SPEAKS = 0.5
LEAST = 5  # chunks


async def main() -> None:
    """Follow all streams at once, and print the seconds with a voice of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="WAV files of 16 kHz, 16 bit, mono")
    files = parser.parse_args().files
    async with AsyncInputQueue(name="voice") as queue:
        heard = await asyncio.gather(*(listen(queue, file) for file in files))
    for file, voices in zip(files, heard, strict=True):
        print(file, *(f"{begin:.1f}-{end:.1f}" for begin, end in spans(voices)))


async def listen(queue: AsyncInputQueue, file: str) -> list[bool]:
    """Return for each chunk whether somebody speaks. The next chunk goes out with the state that the last one came back with."""
    state, context = np.zeros((2, 1, 128), np.float32), np.zeros(CONTEXT, np.float32)
    voices = list[bool]()
    for chunk in chunks(file):
        sound = np.concatenate((context, chunk))[None]
        probability, state = await queue.predict({"input": sound, "state": state, "sr": RATE})
        context = chunk[-CONTEXT:]
        voices.append(probability.item() > SPEAKS)
    return voices


def chunks(file: str) -> Iterator[NDArray[np.float32]]:
    """Yield chunks float32 [512], as a microphone would."""
    with wave.open(file) as recording:
        while len(chunk := np.frombuffer(recording.readframes(CHUNK), "<i2")) == CHUNK:
            yield np.divide(chunk, 32768, dtype=np.float32)


def spans(voices: list[bool]) -> Iterator[tuple[float, float]]:
    """Yield begin and end, in seconds, of the voices that last."""
    for speaks, places in groupby(range(len(voices)), voices.__getitem__):
        first, *_, last = (place := list(places))[0], place[-1]
        if speaks and last - first >= LEAST:
            yield first * CHUNK / RATE, (last + 1) * CHUNK / RATE


if __name__ == "__main__":
    asyncio.run(main())
