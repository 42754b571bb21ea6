"""The kernel's lists of cores, such as `0-3,8`."""

from collections.abc import Collection
from itertools import groupby
from pathlib import Path


def parse(text: str) -> frozenset[int]:
    """The numbers in a list; none in an empty one.

    Raises:
        ValueError: it is no list.
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def read(path: Path) -> frozenset[int]:
    """The list in a file; none when there is no such file."""
    return parse(text_of(path))


def text_of(path: Path) -> str:
    """The text of one of the kernel's files, stripped; empty when it is not there, or has nothing to say now."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()  # mounts have any names
    except OSError:  # the kernel answers some of them with an error while a core goes on or off
        return ""


def written(numbers: Collection[int]) -> str:
    """Numbers as a list."""
    parts: list[str] = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)
