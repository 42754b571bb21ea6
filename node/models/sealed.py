"""Encrypted models: opened in memory, for as long as it takes to load them.

    modelPath/small.xml       base64 of AES-CBC (client/encryption.py)      the only file on disk
    memfd                     its content                                   in no file system; gone with its descriptor
    /dev/shm/.../small.xml -> /proc/self/fd/9                               a link, so that libraries find it by its name

Meanwhile temporary files go to /dev/shm, which is memory too: some libraries unpack a model before they read it. A process that
is killed leaves links to nothing.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from cluster_serving.client import keys
from cluster_serving.client.encryption import SEALED_HEAD_BYTES, ModelCipher, looks_sealed
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.redaction import hide
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import SAVED_MODEL, Detected
from cluster_serving.node.models.secrets import Secrets

# In the words of the original.
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
    """The files of an encrypted model in the clear, in memory.

    All files of the model's directory are there, with those of its subdirectories; those that are not encrypted are links to
    where they are. There is no real path behind a file that was opened: `Path.resolve` leads to nowhere.

    Args:
        detected: the model on disk.
        secrets: its secret and salt.

    Yields:
        The same model in a private directory, for the block; what is loaded in the block does not need it any more.

    Raises:
        ModelError: a file of the model is not encrypted, or cannot be opened; one that the block raises names the files on disk.
    """
    definition, weights = detected.definition, detected.weights
    root = definition if definition.is_dir() else definition.parent
    needed = [root / name for name in SAVED_MODEL] if root == definition else [definition, weights or definition]
    with ExitStack() as stack:
        stack.enter_context(_temporaries_in_memory())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cluster-serving-")))
        _open_tree(root, folder, _cipher(secrets), stack)
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
    """Whether this is a file of a model that is `opened`."""
    return path.is_symlink() and str(path.readlink()).startswith(_OPENED_AT)


def model_files(root: Path) -> Iterator[Path]:
    """The files of a model's directory and its subdirectories, without hidden ones and compiled Python."""
    for folder, directories, names in os.walk(root):
        directories[:] = sorted(name for name in directories if not name.startswith(".") and name != "__pycache__")
        files = (Path(folder, name) for name in sorted(names) if not name.startswith("."))
        yield from (file for file in files if file.is_file())


def is_sealed(path: Path) -> bool:
    """Whether a file is encrypted, as far as its beginning tells."""
    with path.open("rb") as stream:
        return looks_sealed(stream.read(SEALED_HEAD_BYTES))


def wait_for_secrets(settings: RedisSettings, say: Callable[[str], object], given: Secrets) -> Secrets:
    """The secret and salt of the model: those given, or those that somebody puts into Redis.

    Args:
        settings: of Redis, which may be away for a while.
        say: told that it waits, every three seconds.
        given: what the configuration says.
    """
    if given.secret and given.salt:
        return given
    while True:
        found = _from_redis(settings, say)
        if found.secret and found.salt:
            hide(found.secret, found.salt)
            return found
        say(_WAITING)
        say(_RETRYING)
        time.sleep(_RETRY_S)


def _from_redis(settings: RedisSettings, say: Callable[[str], object]) -> Secrets:
    try:
        with settings.client() as client:
            values: Any = client.hmget(keys.MODEL_SECURED, [keys.SECRET, keys.SALT])
    except (redis.RedisError, OSError) as error:
        say(f"Redis at {settings.describe()} cannot be asked for the secret and salt of the model: {error}")
        return Secrets()
    return Secrets(*((value or b"").decode(errors="replace") for value in values))


def _cipher(secrets: Secrets) -> ModelCipher:
    try:
        return ModelCipher(secrets.secret, secrets.salt)
    except (ValueError, ModuleNotFoundError) as error:
        raise ModelError(f"the encrypted model cannot be opened: {error}") from error


def _open_tree(root: Path, folder: Path, cipher: ModelCipher, stack: ExitStack) -> None:
    for file in model_files(root):
        link = folder / file.relative_to(root)
        link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            link.symlink_to(f"{_OPENED_AT}{_open(file, cipher, stack)}" if is_sealed(file) else file.absolute())
        except OSError as error:
            raise ModelError(f"{file} cannot be opened: {error.strerror}") from error


def _open(file: Path, cipher: ModelCipher, stack: ExitStack) -> int:
    """Open a file into memory; the number of its descriptor."""
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
    """Lets Python import from a folder that will go, and leave nothing in it."""
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # it would be written beside the source, onto the disk
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
        # Who makes a folder of this name later would be asked for every module that is imported.
        sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(folder)]
