"""Class names that `topN` puts beside its indices, read from a file: line i, counted from 0, names class i."""

from pathlib import Path

import msgspec

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.processing.topn import Filter


def with_labels(chosen: Filter | None, path: str) -> Filter | None:
    """Return the filter with the class names of a file. Without a file, return the filter unchanged.

    Raises:
        ModelError: the filter is not `topN`, or the file cannot be used.
    """
    if not path:
        return chosen
    if chosen is None or chosen.name != "topN":
        raise ModelError(
            f"labels is {path}, and only topN names classes: set postProcessing to topN(5), or labels to nothing."
        )
    return msgspec.structs.replace(chosen, labels=read_labels(Path(path)))


def read_labels(path: Path) -> tuple[str, ...]:
    """Return the class names in a UTF-8 file with a name on each line. Empty lines at the end do not count.

    Raises:
        ModelError: the file cannot be read, is no text, or holds no name.
    """
    try:
        # splitlines() would also cut at form feeds and further characters that a name may hold.
        names = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    except OSError as error:
        raise ModelError(f"labels: {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"labels: {path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
    if names == [""]:
        raise ModelError(f"labels: {path} is empty; it must hold a class name a line.")
    return tuple(name.strip() for name in names)
