"""The release that today's code is tested beside: its source, as `make frozen` has kept it."""

import os
import tarfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "frozen" / "release.tar.xz"


def unpack(directory: Path) -> Path:
    """Unpack the release, and return the folder from which Python imports it."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # from Python 3.11.4 on
        archive.extractall(directory)  # noqa: S202 - our own release
    return directory / "src"


@contextmanager
def imported(folder: Path) -> Generator[None]:
    """Let programs that are started in the block import Cluster Serving from a folder."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
