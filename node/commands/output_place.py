"""Place of a file that a command writes at its end, and checks at its beginning."""

import os
from pathlib import Path

from cluster_serving.client.servers.process.exit_codes import Fault


def check_place(path: Path, *, makes_folders: bool = False) -> None:
    """Check that a file can be written, before the minutes of work for the file.

    Args:
        path: the file.
        makes_folders: the command makes the folders that are missing.

    Raises:
        Fault: the file cannot be written there.
    """
    folder = path.parent
    while makes_folders and not folder.exists():
        folder = folder.parent
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise Fault(f"{path} cannot be written: {folder} is no directory, or not yours to write to")
