"""Lists of cores in the kernel's notation, such as `0-3,8`."""

from collections.abc import Collection
from itertools import groupby
from pathlib import Path


def parse(text: str) -> frozenset[int]:
    """Return the numbers in a list. An empty list has no numbers.

    Raises:
        ValueError: the text is no list.
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def read(path: Path) -> frozenset[int]:
    """Return the numbers of the list in a file, or no numbers when the file is missing."""
    return parse(text_of(path))


def text_of(path: Path) -> str:
    """Return the stripped text of a kernel file, or an empty text when the file is missing or cannot be read now."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").strip()  # names of mounts may have any bytes
    except OSError:  # reading may fail while a core is switched on or off
        return ""


def written(numbers: Collection[int]) -> str:
    """Return numbers in the kernel's notation."""
    parts: list[str] = []
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ",".join(parts)
