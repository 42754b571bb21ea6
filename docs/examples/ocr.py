"""Read a page with three jobs, which detect lines, turn them upright and recognise their characters: `python ocr.py PAGE`."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from cluster_serving.client import InputQueue

Picture = NDArray[np.float32]  # (3, height, width), -1..1
HEIGHT, ANGLE_WIDTH, IS_TEXT, IS_TURNED = 48, 192, 0.3, 0.5


def main() -> None:
    """Print the lines from top to bottom."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", help="image file")
    parser.add_argument("--characters", type=Path, default=Path("ocr/characters.txt"), help="of the recogniser")
    options = parser.parse_args()
    characters = ["", *options.characters.read_text()]
    page: Any = cv2.imread(options.page)
    page = page.transpose(2, 0, 1) / np.float32(127.5) - 1
    detect, angle, recognise = (InputQueue(name=f"ocr-{job}") for job in ("detect", "angle", "recognise"))
    with detect, angle, recognise:
        found = [fitted(line) for line in lines(page, detect.predict({"x": page})[0])]
        angles: list[Any] = list(angle.predict_many({"x": fitted(line, ANGLE_WIDTH)} for line in found))
        pairs = zip(found, angles, strict=True)
        upright = [line[:, ::-1, ::-1] if turned > IS_TURNED else line for line, (_, turned) in pairs]
        read: list[Any] = list(recognise.predict_many({"x": line} for line in upright))
        print(*(decoded(scores, characters) for scores in read), sep="\n")


def lines(page: Picture, probability: Picture) -> Iterator[Picture]:
    """Yield the parts of the page where the pixels are likely text."""
    contours, _ = cv2.findContours((probability > IS_TEXT).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    for x, y, width, height in sorted(map(cv2.boundingRect, contours), key=lambda box: box[1]):
        yield page[:, y : y + height, x : x + width]


def fitted(line: Picture, width: int | None = None) -> Picture:
    """Return a line of the height that the models take, cut or filled up with white to the width."""
    _, height, length = line.shape
    resized: Any = cv2.resize(line.transpose(1, 2, 0), (length * HEIGHT // height, HEIGHT)).transpose(2, 0, 1)
    missing = 0 if width is None else max(0, width - resized.shape[2])
    return np.pad(resized, ((0, 0), (0, 0), (0, missing)), constant_values=1)[:, :, :width]


def decoded(scores: Picture, characters: list[str]) -> str:
    """Return the text of the best character of each column, once where it is repeated, and without blanks (CTC)."""
    best = scores.argmax(axis=1)
    text = "".join(characters[now] for before, now in zip([0, *best[:-1]], best, strict=True) if now != before)
    return " ".join(text.split())


if __name__ == "__main__":
    main()
