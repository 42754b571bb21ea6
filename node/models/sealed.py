"""Encrypted models, decrypted in memory while they are loaded.

    modelPath/small.xml       base64 of AES-CBC (client/wire/encryption.py)      the only file on disk
    memfd                     decrypted content                             in no file system, gone with its file descriptor
    /dev/shm/.../small.xml -> /proc/self/fd/9                               a link: libraries find the content by the file's name

During the loading, temporary files go to /dev/shm, which is memory too, because some libraries unpack a model before they read
it. A killed process leaves dangling links.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.redaction import hide
from cluster_serving.client.wire.encryption import SEALED_HEAD_BYTES, ModelCipher, looks_sealed
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import SAVED_MODEL, Detected
from cluster_serving.node.models.secrets import Secrets

# Texts of the original product.
_WAITING = (
    "Waiting for Model Encrypted Secret and Salt in Redis,"
    "please put them in model_secured -> secret and model_secured -> salt"
)
_RETRYING = "Retrying in 3 seconds..."
_RETRY_S = 3.0

_OPENED_AT = "/proc/self/fd/"
MEMORY = "/dev/shm"  # noqa: S108 - the folder made there is private


@contextmanager
def opened(detected: Detected, secrets: Secrets) -> Generator[Detected]:
    """Decrypt the files of a model into memory.

    A private directory holds all files of the model's directory and of its subdirectories. A file that is not encrypted is a link
    to its place on disk. A decrypted file has no real path: `Path.resolve` leads nowhere.

    Args:
        detected: the model on disk.
        secrets: secret and salt of the model.

    Yields:
        The same model in the private directory, until the end of the block. A model loaded in the block does not need the
        directory afterwards.

    Raises:
        ModelError: a file of the model is not encrypted, or cannot be opened. A ModelError of the block names the files on disk.
    """
    definition, weights = detected.definition, detected.weights
    root = definition if definition.is_dir() else definition.parent
    needed = [root / name for name in SAVED_MODEL] if root == definition else [definition, weights or definition]
    with ExitStack() as stack:
        stack.enter_context(_temporaries_in_memory())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-serving-")))
        _open_tree(root, folder, secrets, stack)
        for file in needed:
            if file.exists() and not in_memory(folder / file.relative_to(root)):
                raise ModelError(
                    f"{file} is not encrypted: encrypt it with cluster-serving encrypt, or set modelEncrypted: false"
                )
        stack.enter_context(_imported_from(folder))
        paths = [None if path is None else str(folder / path.relative_to(root)) for path in (definition, weights)]
        try:
            yield Detected(detected.format, str(paths[0]), paths[1])
        except ModelError as error:
            raise ModelError(str(error).replace(str(folder), str(root))) from error


def in_memory(path: Path) -> bool:
    """Return whether a path is a file that `opened` has decrypted into memory."""
    return path.is_symlink() and str(path.readlink()).startswith(_OPENED_AT)


def model_files(root: Path) -> Iterator[Path]:
    """Yield the files of a model's directory and its subdirectories, without hidden files and compiled Python."""
    for folder, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if not name.startswith(".") and name != "__pycache__")
        files = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def is_sealed(path: Path) -> bool:
    """Return whether a file is encrypted, as far as its beginning tells."""
    with path.open("rb") as stream:
        return looks_sealed(stream.read(SEALED_HEAD_BYTES))


def wait_for_secrets(settings: RedisSettings, say: Callable[[str], object], given: Secrets) -> Secrets:
    """Return the secret and salt of the model: the configured pair, or else the pair in Redis, as soon as it is there.

    Args:
        settings: connection to Redis, which may be away for a while.
        say: called every three seconds during the wait.
        given: secret and salt of the configuration.
    """
    if given.secret and given.salt:
        return given
    import redis  # imported here, because a worker has no other use for it

    while True:
        try:
            with settings.client() as client:
                values: Any = client.hmget(keys.MODEL_SECURED, [keys.SECRET, keys.SALT])
        except (redis.RedisError, OSError) as error:
            say(f"Redis at {settings.describe()} cannot be asked for the secret and salt of the model: {error}")
        else:
            found = Secrets(*((value or b"").decode(errors="replace") for value in values))
            if found.secret and found.salt:
                hide(found.secret, found.salt)
                return found
        say(_WAITING)
        say(_RETRYING)
        time.sleep(_RETRY_S)


def _open_tree(root: Path, folder: Path, secrets: Secrets, stack: ExitStack) -> None:
    """Fill `folder` with links to the files of `root`. The link to an encrypted file leads to the decrypted content."""
    try:
        cipher = ModelCipher(secrets.secret, secrets.salt)
    except (ValueError, ModuleNotFoundError) as error:
        raise ModelError(f"the encrypted model cannot be opened: {error}") from error
    for file in model_files(root):
        link = folder / file.relative_to(root)
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            link.symlink_to(f"{_OPENED_AT}{_open(file, cipher, stack)}" if is_sealed(file) else file.absolute())
        except OSError as error:
            raise ModelError(f"{file} cannot be opened: {error.strerror}") from error


def _open(file: Path, cipher: ModelCipher, stack: ExitStack) -> int:
    """Decrypt a file into memory and return the number of its file descriptor."""
    target = stack.enter_context(os.fdopen(os.memfd_create("model"), "wb"))
    try:
        with file.open("rb") as source:
            cipher.open_file(source, target)
    except ValueError as error:
        raise ModelError(f"{file} cannot be opened: {error}") from error
    target.flush()
    return target.fileno()


@contextmanager
def _temporaries_in_memory() -> Generator[None]:
    before = tempfile.tempdir
    if os.access(MEMORY, os.W_OK):
        tempfile.tempdir = MEMORY
    try:
        yield
    finally:
        tempfile.tempdir = before


@contextmanager
def _imported_from(folder: Path) -> Generator[None]:
    """Keep compiled Python off the disk while a model imports from `folder`. At the end, clear `folder` from the import path."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # compiled Python would be written beside the source, onto the disk
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        # Otherwise a later folder of the same name, made by any user, would be searched for every imported module.
        sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(folder)]
