"""Files that are written whole, or not at all."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, mode: int = 0o666, *, new: bool = False) -> Generator[BinaryIO]:
    """Open a file for a block that writes the content. The file of before stays as it is until the end of the block.

    An unfinished file is removed. A link stays, and its file is written. A device or pipe is written to, and stays what it is.

    Args:
        path: the file.
        mode: permissions of the file, as far as the umask allows.
        new: nothing may have the name yet, not even a link. Of several processes one gets the file.

    Raises:
        FileExistsError: the name of a new file is taken.
        OSError: the file cannot be written. The error names the file, which that of a full disk does not do by itself.
    """
    file = path if new else Path(os.path.realpath(path))
    draft = file
    try:
        if not new:
            if file.exists() and not file.is_file():
                with file.open("wb") as stream:
                    yield stream
                return
            draft = file.with_name(f".{file.name}.{threading.get_native_id()}")
            draft.unlink(missing_ok=True)  # of a thread with this id that was killed
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
            draft.replace(file)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.filename in (None, str(draft)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
