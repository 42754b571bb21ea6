"""Calibration data of a job, made of its live records, in the directory of the job.

    calibration/<random>/
        records.npz         records, an array for each input of the model
        kept                path of the proofs and models by these records: store and conditions (`engines/kept_proofs.py`)

The data stay as long as the options of the job's start name them. `--apply` adds a pair of settings to the options, and
`--rollback` takes the pair back: precision=..., calibrationData=<this folder>/<random>/records.npz
"""

import fcntl
import os
import secrets
import shutil
import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.engines.kept_proofs import forget, remove_left
from cluster_serving.node.job.directory import Job
from cluster_serving.node.lifecycle.options import StartOptions
from cluster_serving.node.models.base import Array

_DATA, _KEPT = "records.npz", "kept"
_KEY = "calibrationData"


class CalibrationFolder:
    """Folder with the calibration data of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._directory = job.directory / "calibration"

    @contextmanager
    def held(self) -> Generator[None]:
        """Hold the folder for a block.

        Raises:
            Fault: a different process holds the folder.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Fault(
                    f"another calibrate of job {self._job.name} is under way; try again when it has ended"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def new(self) -> Path:
        """Return a path for new data. The file does not exist yet."""
        return self._directory / secrets.token_hex(4) / _DATA

    def applied(self, options: StartOptions, data: Path, precision: str) -> StartOptions:
        """Return options with the pair of settings."""
        return replace(options, settings=(*options.settings, f"precision={precision}", f"{_KEY}={data}"))

    def taken_back(self, options: StartOptions) -> StartOptions:
        """Return options without the pair of settings. The same options: nothing of this folder was applied.

        A later `precision` has taken the place of the pair's, and stays.
        """
        kept: list[str] = []
        for each in options.settings:
            if not each.startswith(f"{_KEY}={self._directory}/"):
                kept.append(each)
            elif kept and kept[-1].startswith("precision="):
                kept.pop()
        return replace(options, settings=tuple(kept))

    def remove_unused(self) -> None:
        """Remove all data that the options of the job's start do not name, with the proofs and models by the data."""
        record = self._job.read()
        named = "\n".join(record.flags if record is not None else ())
        for folder in self._directory.iterdir():
            if str(folder) not in named:
                if (folder / _KEPT).exists():
                    kept = Path((folder / _KEPT).read_text())
                    # A crash of the machine may have left the file without its content.
                    if kept.parent.name == self._job.proof_directory("").name:
                        forget(kept.parent, kept.name)
                        remove_left(kept.parent)
                shutil.rmtree(folder)


def write_records(path: Path, arrays: Mapping[str, Array], kept: Path) -> None:
    """Write calibration data for their owner only, and beside them the path of everything that is kept by the data.

    Raises:
        OSError: the data cannot be written. The error names their file.
    """
    path.parent.mkdir(mode=0o700)
    try:
        draft = path.parent / f".{_KEPT}"
        draft.write_text(str(kept))
        draft.replace(path.parent / _KEPT)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        # Not by numpy.savez, whose own parameters would be mistaken for inputs of the same names.
        with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # the error of a full disk names no file
