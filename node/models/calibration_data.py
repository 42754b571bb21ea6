"""Files of `calibrationData`, the user's own records, and a hash of their contents."""

import hashlib
from pathlib import Path

from cluster_serving.node.models.base import ModelError

LABELS = "labels"
MOST_RECORDS = 2000
"""Records that INT8 is calibrated and judged by, at most."""
IMAGES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".pgm", ".ppm"})


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder, sorted by name, without hidden files: macOS puts a `._x.jpg` beside each `x.jpg`."""
    return sorted(
        file
        for file in folder.iterdir()
        if file.suffix.lower() in IMAGES and not file.name.startswith(".") and not file.is_dir()
    )


def data_hash(data: str, metric: str = "") -> str:
    """Return a hash of the contents that decide about a model in INT8: calibration data, labels and metric.

    Args:
        data: value of `calibrationData`, an absolute path.
        metric: value of `accuracyMetric`.

    Raises:
        ModelError: a file cannot be read.
    """
    path = Path(data)
    total = hashlib.sha256()
    try:
        files = [*image_files(path)[:MOST_RECORDS], path / f"{LABELS}.npy"] if path.is_dir() else [path]
        for file in (*files, Path(metric.rpartition(":")[0])):
            if file.is_file():
                with file.open("rb") as stream:
                    total.update(file.name.encode() + b"\0" + hashlib.file_digest(stream, "sha256").digest())
    except OSError as error:
        raise ModelError(f"calibrationData {path}: {error.strerror}") from error
    return total.hexdigest()[:16]
