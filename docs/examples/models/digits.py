"""Make `digits/`: the quick start's trained model, names of its classes, and 360 images that it has never seen.

A file `broken.png` that is no image lies among them.
"""

from importlib.resources import files
from pathlib import Path

import cv2
import numpy as np

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def main() -> None:
    """Make the folder here."""
    quickstart, target = files("cluster_serving.node.quickstart"), Path("digits")
    for folder in ("model", "images"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    (target / "model" / "digits.onnx").write_bytes((quickstart / "model" / "digits.onnx").read_bytes())
    (target / "labels.txt").write_text("\n".join(NAMES) + "\n")
    with (quickstart / "held_out.npz").open("rb") as file, np.load(file) as held_out:
        images, labels = held_out["images"], held_out["labels"]
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        cv2.imwrite(str(target / "images" / f"{number:03}-{NAMES[label]}.png"), image)
    (target / "images" / "broken.png").write_bytes(b"no image")
    print(f"digits/images: {len(images)} images and a broken file")


if __name__ == "__main__":
    main()
