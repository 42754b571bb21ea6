"""Classify the images of a folder, as the quick start of Analytics Zoo does: `python image_classification.py -i FOLDER`."""

import argparse
from pathlib import Path

from cluster_serving.client import InputQueue, RecordFailed


def main() -> None:
    """Print a line for each image."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-i", "--image_path", type=Path, default=Path("test_image"), help="folder of images")
    paths = sorted(parser.parse_args().image_path.iterdir())
    with InputQueue(name="digits") as queue:
        answers = queue.predict_many({"image": str(path)} for path in paths)
        for path, answer in zip(paths, answers, strict=True):
            if isinstance(answer, RecordFailed):  # its neighbours are answered all the same
                print(f"image: {path.name}, {answer.code}: {answer.reason}")
                continue
            ((_, probability, name),) = answer  # of topN(1), with the name from labels
            print(f"image: {path.name}, classification-result: class: {name}'s prob: {probability:.3f}")


if __name__ == "__main__":
    main()
