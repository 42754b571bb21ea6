"""The file of class names that `topN` puts beside its indices: line i, counted from 0, names class i."""

from pathlib import Path

import msgspec

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.processing.topn import Filter


def with_labels(chosen: Filter | None, path: str) -> Filter | None:
    """A filter that also names the classes; as it is when there is no file of names.

    Raises:
        ModelError: the filter names no classes, or the file is not as it should be.
    """
    if not path:
        return chosen
    if chosen is None or chosen.name != "topN":
        raise ModelError(
            f"labels is {path}, and only topN names classes: set postProcessing to topN(5), or labels to nothing."
        )
    return msgspec.structs.replace(chosen, labels=read_labels(Path(path)))


def read_labels(path: Path) -> tuple[str, ...]:
    """The names in a UTF-8 file, one a line; empty lines at its end do not count.

    Raises:
        ModelError: the file cannot be read, is no text, or holds no name.
    """
    try:
        # Not splitlines(), which also cuts at form feeds and other characters that a name may hold.
        names = path.read_text(encoding="utf-8-sig").rstrip().split("\n")
    except OSError as error:
        raise ModelError(f"labels: {path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"labels: {path} is not UTF-8 text: {error.reason} at byte {error.start}.") from error
    if names == [""]:
        raise ModelError(f"labels: {path} is empty; it must hold a class name a line.")
    return tuple(name.strip() for name in names)
