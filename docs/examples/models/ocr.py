"""Make `ocr/`: three small networks that read printed capitals and digits, and a page to read.

Inputs and outputs are those of PaddleOCR's models: a picture to the probability of text of each pixel; a line to the probabilities
of upright and upside down; a line to the probabilities of each character, column by column, the blank first.

The detector looks for dark strokes. The readers are a convolution and a layer on top, trained on lines that OpenCV writes.
"""

import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from onnx_file import save
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
FONT = cv2.FONT_HERSHEY_DUPLEX
LINES, EPOCHS, HIDDEN, NEAR = 300, 12, 96, 0.18
CELL, WIDE = 3, 12  # pixels of a cell, and cells that the convolution sees at once
ROWS = 48 // CELL
PAGE = ("INVOICE 2417", "BERLIN 9 MAY", "TOTAL 358 EUR", "THANK YOU")
UPSIDE_DOWN = 2  # line of the page
ANGLE_WIDTH = 192

Cells = NDArray[np.float32]  # (16, columns), -1 black, 1 white

DETECT = """
detect (float[batch, 3, height, width] x) => (float[batch, 1, height, width] probability) {
    grey = ReduceMean<axes = [1], keepdims = 1>(x)
    paper = MaxPool<kernel_shape = [15, 15], pads = [7, 7, 7, 7]>(grey)
    ink = Sub(paper, grey)
    text = MaxPool<kernel_shape = [5, 31], pads = [2, 15, 2, 15]>(ink)
    centred = Sub(text, threshold)
    steep = Mul(centred, steepness)
    probability = Sigmoid(steep)
}
"""
LOOK = f"""
    grey = ReduceMean<axes = [1], keepdims = 1>(x)
    cells = AveragePool<kernel_shape = [{CELL}, {CELL}], strides = [{CELL}, {CELL}]>(grey)
    paper = Pad(cells, margins, white)
    seen = Conv(paper, filters, filter_bias)
    active = Relu(seen)
    row = Squeeze(active, two)
    columns = Transpose<perm = [0, 2, 1]>(row)
"""
RECOGNISE = f"""
recognise (float[batch, 3, 48, width] x) => (float[batch, length, {len(CHARACTERS) + 1}] scores) {{{LOOK}
    products = MatMul(columns, weight)
    sums = Add(products, bias)
    scores = Softmax<axis = -1>(sums)
}}
"""
ANGLE = f"""
angle (float[batch, 3, 48, {ANGLE_WIDTH}] x) => (float[batch, 2] scores) {{{LOOK}
    mean = ReduceMean<axes = [1], keepdims = 0>(columns)
    sums = Gemm(mean, weight, bias)
    scores = Softmax<axis = -1>(sums)
}}
"""


def main() -> None:
    """Make the folder here."""
    folder, random = Path("ocr"), np.random.default_rng(1)
    lines = [line(random) for _ in range(LINES)]
    seen = np.concatenate([windows(cells) for cells, _ in lines])
    reader: Any = MLPClassifier((HIDDEN,), max_iter=EPOCHS, learning_rate_init=0.003, random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it could be trained for longer
        reader.fit(seen, np.concatenate([classes for _, classes in lines]))
    (filters, weight), (filter_bias, bias) = reader.coefs_, reader.intercepts_
    upright = [cells for cells, _ in lines]
    turned = [cells[::-1, ::-1] for cells in upright]
    starts = (cells[:, : ANGLE_WIDTH // CELL] for cells in (*upright, *turned))
    means = [np.maximum(windows(cells) @ filters + filter_bias, 0).mean(axis=0) for cells in starts]
    angle: Any = LogisticRegression(max_iter=1000).fit(means, np.repeat([0, 1], LINES))
    look: dict[str, Any] = {
        "margins": np.array([0, 0, 0, WIDE // 2, 0, 0, 0, WIDE // 2 - 1]),
        "white": np.array(1, np.float32),
        "filters": filters.T.reshape(-1, 1, ROWS, WIDE).astype(np.float32),
        "filter_bias": filter_bias.astype(np.float32),
        "two": np.array([2]),
    }
    of_reader = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    of_angle = {
        "weight": np.stack((-angle.coef_[0], angle.coef_[0]), axis=1).astype(np.float32),
        "bias": (angle.intercept_ * [-1, 1]).astype(np.float32),
    }
    save(folder / "recognise" / "recognise.onnx", RECOGNISE, **look, **of_reader)
    save(folder / "angle" / "angle.onnx", ANGLE, **look, **of_angle)
    threshold, steepness = np.array(1, np.float32), np.array(12, np.float32)
    save(folder / "detect" / "detect.onnx", DETECT, threshold=threshold, steepness=steepness)
    (folder / "characters.txt").write_text(CHARACTERS)
    cv2.imwrite(str(folder / "page.png"), page())
    print(f"ocr: networks for {len(CHARACTERS)} characters, and a page of {len(PAGE)} lines")


def line(random: np.random.Generator) -> tuple[Cells, NDArray[np.int64]]:
    """Return a line of random characters in cells, and the class of each column: 0 between characters."""
    text = " ".join("".join(random.choice(list(CHARACTERS + 4 * " "), random.integers(9, 16))).split())
    picture, edges = written(text, random.uniform(0.9, 1.3))
    rows, across = np.nonzero(picture < 128)
    top, bottom = rows.min() - random.integers(1, 5), rows.max() + random.integers(2, 6)
    left, right = across.min() - random.integers(8, 20), across.max() + random.integers(8, 20)
    scale = ROWS / (bottom - top)
    size = (round((right - left) * scale), ROWS)
    cells: Any = cv2.resize(picture[top:bottom, left:right], size, interpolation=cv2.INTER_AREA)
    centres = ((edges[:-1] + edges[1:]) / 2 - left) * scale
    distances = np.abs(np.arange(size[0])[:, None] - centres)
    nearest, distance = distances.argmin(axis=1), distances.min(axis=1)
    classes = np.array([CHARACTERS.index(character) + 1 for character in text])[nearest]
    is_near = distance < NEAR * np.diff(edges)[nearest] * scale
    paper, ink = random.uniform(0.6, 1), random.uniform(-1, -0.6)
    return ink + (paper - ink) / 255 * cells.astype(np.float32), np.where(is_near, classes, 0)


def written(text: str, size: float) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Return a white picture uint8 with black text, and the pixels from the left at which its characters begin and end."""
    (width, height), _ = cv2.getTextSize(text, FONT, size, 2)
    picture = np.full((height + 60, width + 60), 255, np.uint8)
    cv2.putText(picture, text, (30, height + 30), FONT, size, 0, 2, cv2.LINE_AA)
    edges = [cv2.getTextSize(text[:count], FONT, size, 0)[0][0] for count in range(len(text) + 1)]
    return picture, 30 + np.array(edges, np.float64)


def windows(cells: Cells) -> NDArray[np.float32]:
    """Return what the convolution sees around each column: float32 [columns, 16 * 12]."""
    paper = np.pad(cells, ((0, 0), (WIDE // 2, WIDE // 2 - 1)), constant_values=1)
    seen = np.lib.stride_tricks.sliding_window_view(paper, WIDE, axis=1)
    return seen.transpose(1, 0, 2).reshape(-1, ROWS * WIDE)


def page() -> NDArray[np.uint8]:
    """Return a page of text, uint8 [height, width], with a line that lies upside down."""
    picture = np.full((90 + 80 * len(PAGE), 520), 235, np.uint8)
    for number, text in enumerate(PAGE):
        cv2.putText(picture, text, (50, 90 + 80 * number), FONT, 1.1, 20, 2, cv2.LINE_AA)
    strip = slice(40 + 80 * UPSIDE_DOWN, 120 + 80 * UPSIDE_DOWN)
    picture[strip] = picture[strip][::-1, ::-1]
    return picture


if __name__ == "__main__":
    main()
