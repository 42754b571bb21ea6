"""Files that are written whole, or not at all."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Open a file for a block that writes the content. The file of before stays as it is until the end of the block.

    An unfinished file is removed. A link stays, and its file is written. A device or pipe is written to, and stays what it is.

    Args:
        path: the file.
        mode: permissions of the file, as far as the umask allows.

    Raises:
        OSError: the file cannot be written. The error names the file, which that of a full disk does not do by itself.
    """
    file = Path(os.path.realpath(path))
    is_special = file.exists() and not file.is_file()
    draft = file if is_special else file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if is_special:
            with file.open("wb") as stream:
                yield stream
            return
        draft.unlink(missing_ok=True)  # of a process with this pid that was killed
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            yield stream
        draft.replace(file)
    except BaseException as error:
        if not is_special:
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(draft)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
