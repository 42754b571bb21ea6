"""Magic rows, which make a worker misbehave with any model: a wrapper around the model recognizes the rows.

`cluster-serving chaos` names a file in the environment of its nodes (`VARIABLE`), and writes the file as soon as the model's
inputs are known. Until then, and for ordinary rows, the model runs unchanged. Each run with a magic row is noted in a log beside
the file.
"""

import os
import resource
import signal
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.models.base import Array, Backend, TensorSpec

VARIABLE: Final = "CHAOS_POISON"
"""Environment variable: path of the file that holds `Poison`."""
_LEADING = 64  # number of values of an input that identify a row


class Effect(StrEnum):
    """Effect of a row on the worker that runs it."""

    RAISE = "raise"
    CRASH = "crash"
    HANG = "hang"
    SLEEP = "sleep"  # for `sleep_s`


class MagicRow(msgspec.Struct, frozen=True):
    """Magic row: its number in the log, its key by `row_keys`, and its effect on the worker."""

    number: int
    key: bytes
    effect: Effect


class Poison(msgspec.Struct, frozen=True):
    """Content of the file, stored as JSON."""

    sleep_s: float
    rows: list[MagicRow]

    def write(self, path: Path) -> None:
        """Write the file in one step."""
        with whole_file(path) as stream:
            stream.write(msgspec.json.encode(self))


def row_keys(batch: Mapping[str, Array], inputs: Sequence[TensorSpec]) -> list[bytes]:
    """Return the key of each row of a batch, or of a call: the first values of every input that has rows, or of every input."""
    axes = {spec.name: spec.batch_axis for spec in inputs}
    is_call = all(axis is None for axis in axes.values()) and bool(axes)
    columns: list[list[bytes]] = []
    for name, array in batch.items():
        axis = 0 if is_call else axes.get(name, 0)
        if axis is None:
            continue
        rows = array[np.newaxis] if is_call else np.moveaxis(array, axis, 0)
        flat = rows.reshape(len(rows), -1)[:, :_LEADING] if rows.size else rows.reshape(len(rows), 0)
        columns.append([str(row.tolist()).encode() if row.dtype == object else row.tobytes() for row in flat])
    return [b"\0".join(parts) for parts in zip(*columns, strict=False)]


def log_of(path: Path) -> Path:
    """Return the path of the log. Each run with magic rows has a line with the time (Unix s), the pid and the rows' numbers."""
    return path.with_suffix(".log")


def runs_of(path: Path) -> dict[int, int]:
    """Return how often each magic row has been run so far."""
    runs: dict[int, int] = {}
    log = log_of(path)
    for line in log.read_text(encoding="ascii").splitlines() if log.exists() else ():
        for number in map(int, line.split()[2:]):
            runs[number] = runs.get(number, 0) + 1
    return runs


class Poisoned:
    """Backend that misbehaves on magic rows, and runs the model on all remaining rows.

    Args:
        backend: the model.
        path: path of the file. The file may be written later.
    """

    def __init__(self, backend: Backend, path: Path) -> None:
        self.inputs: tuple[TensorSpec, ...] = backend.inputs
        self.outputs: tuple[TensorSpec, ...] = backend.outputs
        self._backend = backend
        self._path = path
        self._log = log_of(path)
        self._sleep_s = 0.0
        self._rows: dict[bytes, MagicRow] = {}

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model, then have the effects of the batch's magic rows.

        Rows that run again do so after the model has run on them, so that a model that writes into its inputs has done so.

        Raises:
            ValueError: a magic row has the effect RAISE.
        """
        if not self._rows and self._path.exists():
            poison = msgspec.json.decode(self._path.read_bytes(), type=Poison)
            self._sleep_s = poison.sleep_s
            self._rows = {row.key: row for row in poison.rows}
        found = [self._rows[key] for key in row_keys(batch, self.inputs) if key in self._rows] if self._rows else []
        outputs = self._backend.run(batch)
        if found:
            line = f"{time.time():.3f} {os.getpid()} {' '.join(str(row.number) for row in found)}\n"
            descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())  # one write: workers of two nodes share the log
            finally:
                os.close(descriptor)
            effects = {row.effect for row in found}
            if Effect.CRASH in effects:  # by SIGABRT, as native code dies, or by SIGKILL, as the kernel kills
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                os.kill(os.getpid(), signal.SIGABRT if found[0].number % 2 else signal.SIGKILL)
                time.sleep(60)
            if Effect.HANG in effects:
                time.sleep(86_400)
            if Effect.SLEEP in effects:
                time.sleep(self._sleep_s)
            if Effect.RAISE in effects:
                raise ValueError("a record that raises, sent by cluster-serving chaos")
        return outputs


def as_batch(sample: Mapping[str, Array], inputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return a sample as a batch of one row, or as a call, as a backend gets it."""
    axes = {spec.name: spec.batch_axis for spec in inputs}
    batch: dict[str, Array] = {}
    for name, value in sample.items():
        axis = axes.get(name, 0)
        batch[name] = np.asarray(value) if axis is None else np.expand_dims(value, axis)
    return batch


def poisoned(backend: Backend, environ: Mapping[str, str]) -> Backend:
    """Return the backend, wrapped in `Poisoned` if the environment belongs to a run of `cluster-serving chaos`."""
    path = environ.get(VARIABLE)
    return Poisoned(backend, Path(path)) if path else backend
