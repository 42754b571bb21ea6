"""Store of proofs that rows may share a batch, for all jobs of this machine: `.proofs` in their folder, or in `modelCache`.

    .proofs/<conditions>-<fingerprint of the model>-<engine>-<precision>.json
    .proofs/<conditions>-<fingerprint of the model>-int8-<hash of the data>/     a model in INT8 (int8.py)
    .proofs/.int8-<random>/                                                      a model in INT8 in the making. flock: its process

The worker that has found a proof keeps the proof, and every later worker under the same conditions loads the model without a proof
of its own. Several processes may write at once, also from containers: the first proof stays, until a fault shows up. A fault stays.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import structlog

from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.models.runtime import Runtime

log = structlog.get_logger(__name__)

_DRAFT = ".int8-"


class KeptProofs:
    """Kept proofs of one model.

    Args:
        directory: directory of the store. Empty: nothing is kept or found.
        conditions: hash of everything else that decides about a proof: versions, processor, settings.
        model_hash: returns the fingerprint of the model, or an empty text for a model without a fingerprint.
    """

    def __init__(self, directory: str, conditions: str, model_hash: Callable[[], str]) -> None:
        self._directory = directory
        self._conditions = conditions
        self._model_hash = model_hash

    def find(self, runtime: Runtime) -> Proof | None:
        """Return the proof that was kept for a runtime, or `None`."""
        file = self._file(runtime)
        if file is None:
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=Proof)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            with suppress(OSError):
                file.unlink()  # damaged: the next proof takes its place
        except OSError as error:
            log.info("the kept proof cannot be read", reason=str(error))
        return None

    def keep(self, runtime: Runtime, proof: Proof) -> None:
        """Keep a proof. Without the right to write, the next worker proves the model anew."""
        file = self._file(runtime)
        if file is None or not proof.is_lasting:
            return
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".")
            draft = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(msgspec.json.encode(proof))
                if proof.fault:
                    draft.replace(file)
                else:
                    file.hardlink_to(draft)  # fails beside an earlier proof, which may be a fault
            finally:
                draft.unlink(missing_ok=True)
        except FileExistsError:
            pass
        except OSError as error:
            log.info("the proof is not kept", reason=str(error))

    def int8_folder(self, data_hash: str) -> Path | None:
        """Return the folder of the model in INT8 that was made with some calibration data (`int8.py`), if anything is kept."""
        model = self._directory and self._model_hash().rpartition(":")[2]
        return Path(self._directory, f"{self._conditions}-{model}-int8-{data_hash}") if model else None

    def _file(self, runtime: Runtime) -> Path | None:
        model = self._directory and self._model_hash().rpartition(":")[2]
        name = f"{self._conditions}-{model}-{runtime.engine}-{runtime.precision}.json"
        return Path(self._directory, name) if model else None


NOTHING_KEPT = KeptProofs("", "", str)
"""Store that keeps nothing."""


def forget(directory: Path, conditions: str) -> None:
    """Remove everything that was kept under some conditions. A worker that runs a removed model has mapped the weights.

    Raises:
        ValueError: `conditions` is empty, and stands for every file with a hyphen.
    """
    if not conditions:
        raise ValueError("no conditions")
    for kept in directory.glob(f"*{conditions}-*"):
        if kept.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
        else:
            kept.unlink(missing_ok=True)


@contextmanager
def draft(directory: Path) -> Generator[Path]:
    """Yield a new folder of the store, in which this process makes a model, and remove the folder afterwards."""
    with ExitStack() as making:
        with _locked(directory):  # nobody removes the folder before its own lock is held
            _remove_left(directory)
            made = Path(making.enter_context(tempfile.TemporaryDirectory(dir=directory, prefix=_DRAFT)))
            making.enter_context(_locked(made))
        yield made


def remove_left(directory: Path) -> None:
    """Remove the folders of processes that were killed while they made a model: each has calibration data, the user's records."""
    with suppress(OSError), _locked(directory):  # without a store, or the right to change it, nothing can be removed
        _remove_left(directory)


def _remove_left(directory: Path) -> None:
    for left in directory.glob(f"{_DRAFT}*"):
        with suppress(OSError), _locked(left, fcntl.LOCK_NB):  # in the making, or another user's
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(directory: Path, option: int = 0) -> Generator[None]:
    """Hold the lock of a directory for a block. The kernel frees the lock, however this process ends."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | option)
        yield
    finally:
        os.close(descriptor)
