"""A model in INT8: made from the model in float32 and the user's own calibration data, judged, and kept.

    .proofs/<conditions>-<fingerprint of the model>-int8-<hash of the data>/
        model.xml, model.bin     an ordinary IR, which OpenVINO runs without NNCF
        judged.json              `Judged`
        too-slow                 instead of these: the model was not quantised within the time limit

Half of the records calibrates, drawn at random with the same seed each time, and the other half judges. A model that is
refused is quantised once more with accuracy control, which takes the layers back that cost the agreement. On a CPU with bfloat16
the rest of a proven model runs in bfloat16, if that is faster and proven too. The workers of a machine share the result,
and so do nodes with one `modelCache`. Workers that start at the same time wait for the first. A kept model needs no NNCF.
"""

import fcntl
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray

from cluster_serving.client.extras import install_command
from cluster_serving.node.engines.agreement import (
    Agreement,
    Judged,
    Rest,
    by_metric,
    percent,
    records_needed,
    same_arg_max,
)
from cluster_serving.node.engines.calibration import labels_of, samples
from cluster_serving.node.engines.conversion import Converted
from cluster_serving.node.engines.kept_proofs import draft
from cluster_serving.node.engines.precision import has_bfloat16, has_int8
from cluster_serving.node.engines.quantising import Done, Task
from cluster_serving.node.engines.trials import TIE, Trials, time_alone
from cluster_serving.node.engines.warm_up import fixed_batch
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError
from cluster_serving.node.models.calibration_data import MOST_RECORDS
from cluster_serving.node.models.openvino import ov

log = structlog.get_logger(__name__)

PROCESS = "cluster_serving.node.engines.quantising"
_JUDGED, _TOO_SLOW = "judged.json", "too-slow"
_MOST_TO_CALIBRATE = 300  # NNCF's own default: more records take longer and change little
_LONGEST = 200  # characters of an error
_NAMED = 3  # layers


class _Half(NamedTuple):
    """Items of one half of the data: arrays by the names of the inputs, items x the shape of a call, and labels of the records."""

    items: int
    arrays: dict[str, Array]
    labels: Array | None

    def item(self, at: int) -> tuple[dict[str, Array], Array | None]:
        inputs = {name: np.ascontiguousarray(array[at]) for name, array in self.arrays.items()}
        return inputs, None if self.labels is None else self.labels[at]


def in_int8(
    reference: Backend, converted: Converted, options: LoadOptions, batch: int, trials: Trials, folder: Path | None
) -> tuple[Backend, Judged]:
    """Return a model in INT8, ready to run, and its judgement.

    Args:
        reference: the model in float32, which judges.
        converted: the same model in OpenVINO.
        options: options of the worker.
        batch: rows of a timed batch.
        trials: calibration data, and the agreement that the user asks for.
        folder: place where the model is kept. None: it is made for this worker alone.

    Raises:
        ModelError: the model cannot be quantised, or the data are missing, too few or wrong.
    """
    try:
        with _place(folder) as place:
            if (place / _TOO_SLOW).exists():
                raise ModelError(f"{_too_slow(trials)}; to try again, take {place} away")
            if not is_kept(place):
                _make(reference, converted, options, batch, trials, place)
                if folder is not None:
                    _remove_outdated(folder)
            judged = msgspec.json.decode((place / _JUDGED).read_bytes(), type=Judged)
            model = ov.Core().read_model(place / "model.xml")
            return converted.compiled(reference, replace(options, precision=judged.rest), model), judged
    except OSError as error:
        raise ModelError(f"the model in INT8 cannot be kept: {error}") from error


def is_kept(folder: Path | None) -> bool:
    """Return whether a folder has a model in INT8 and its judgement. `None` has none."""
    return folder is not None and (folder / _JUDGED).exists()


@contextmanager
def _place(folder: Path | None) -> Generator[Path]:
    """Yield the folder of the model, which one process at a time fills, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="cluster-serving-int8-") as temporary:
            yield Path(temporary, "model")  # its weights stay mapped when the files are gone
        return
    if is_kept(folder):  # also where nothing may be written
        yield folder
        return
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the kernel frees it, however this process ends
        yield folder


def _make(
    reference: Backend, converted: Converted, options: LoadOptions, batch: int, trials: Trials, place: Path
) -> None:
    """Quantise, judge, and fill the place, all at once at the end."""
    if find_spec("nncf") is None:
        raise ModelError(f"precision int8 needs the package nncf, which is not installed: {install_command('int8')}")
    if any(op.get_type_name() == "FakeQuantize" for op in converted.model.get_ops()):
        raise ModelError(f"{converted.path} is quantised already: set precision: f32")
    calibrating, judging = _halves(reference, trials)
    wanted = options.output_names
    outputs = [(name, port) for name, port, _ in converted.results if not wanted or name in wanted]
    jury = _Jury(reference, [name for name, _ in outputs], trials, judging)
    task = Task(outputs, has_int8(), trials.metric)
    until_s = time.monotonic() + trials.patience_s
    with draft(place.parent) as directory:
        ov.save_model(converted.model, directory / "model.xml", compress_to_fp16=False)
        for spec, port in zip(reference.inputs, converted.ports_in, strict=True):
            np.save(directory / f"input{port}.npy", calibrating.arrays[spec.name])
        if calibrating.labels is not None:
            np.save(directory / "labels.npy", calibrating.labels)

        def compiled(rest: Rest) -> Backend:
            model = ov.Core().read_model(directory / "int8.xml")
            return converted.compiled(reference, replace(options, precision=rest), model)

        def made(task: Task) -> tuple[Done, Judged]:
            done = _quantised(directory, task, until_s - time.monotonic())
            return done, jury.judged(compiled("f32"), done)

        try:
            done, judged = made(task)
            if judged.refused and done.quantised:
                plain = f"plain INT8 agrees on {percent(judged.agreement.share)}"
                done, judged = made(replace(task, most_drop=(1 - trials.agreement) / 2))
                if done.quantised:
                    taken = f"so float32 took back {_names(done.left)}" if done.left else "and no layer is to blame"
                    judged = replace(judged, note=f"{judged.note}; {plain}, {taken}")
                else:
                    judged = replace(judged, refused=f"{plain}, and float32 had to take back every layer")
            if not judged.refused and has_bfloat16():
                before_ms = time_alone(
                    compiled("f32"), batch, trials
                )  # and freed: one candidate is in memory at a time
                model = compiled("bf16")
                ms = time_alone(model, batch, trials)
                if ms is not None and before_ms is not None and ms * TIE < before_ms:
                    judged = jury.judged_with_bfloat16(model, judged, f"{ms:.3g} in place of {before_ms:.3g} ms")
        except subprocess.TimeoutExpired:
            place.mkdir(mode=0o700, exist_ok=True)
            (place / _TOO_SLOW).touch()
            raise ModelError(_too_slow(trials)) from None
        (directory / _JUDGED).write_bytes(msgspec.json.encode(judged))
        place.mkdir(mode=0o700, exist_ok=True)
        for name, kept in (("int8.xml", "model.xml"), ("int8.bin", "model.bin"), (_JUDGED, _JUDGED)):
            (directory / name).replace(place / kept)


def _too_slow(trials: Trials) -> str:
    return f"the model was not quantised to INT8 within {trials.patience_s:g} s; set precision: f32"


def _remove_outdated(folder: Path) -> None:
    """Remove the models that were made with other contents of the data under the same conditions."""
    for other in folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*"):
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)  # a worker that runs it has mapped the weights


def _quantised(directory: Path, task: Task, patience_s: float) -> Done:
    """Run the process that quantises.

    Raises:
        ModelError: the process failed. The message has its last line.
        subprocess.TimeoutExpired: the process took too long, and has been ended.
    """
    (directory / "task.json").write_bytes(msgspec.json.encode(task))
    for name in ("int8.xml", "int8.bin"):
        (directory / name).unlink(missing_ok=True)  # of the run before, which may still be mapped
    log.info("quantising to INT8", accuracy_control=task.most_drop is not None)
    command = [sys.executable, "-m", PROCESS, str(directory)]
    ended = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience_s, check=False
    )
    if ended.returncode:
        last = ended.stderr.strip().rpartition("\n")[2] or f"exit code {ended.returncode}"
        raise ModelError(f"the model cannot be quantised to INT8: {last[:_LONGEST]}")
    return msgspec.json.decode((directory / "done.json").read_bytes(), type=Done)


class _Jury:
    """Judgement of models in INT8 by the half of the data that judges.

    Args:
        reference: the model in float32.
        outputs: names of the outputs to compare.
        trials: agreement that the user asks for, and the user's metric.
        half: the data.

    Raises:
        ModelError: the model fails on the data, or its outputs cannot be judged.
    """

    def __init__(self, reference: Backend, outputs: Sequence[str], trials: Trials, half: _Half) -> None:
        self._reference = reference
        self._outputs = outputs
        self._trials = trials
        self._half = half
        self._size = fixed_batch(reference) or 1
        self._judge = by_metric(trials.metric) if trials.metric else same_arg_max
        inputs, labels = half.item(0)
        expected = self._expected(inputs)
        self._judge(expected, expected, labels)  # a mistake is told now, not after minutes

    def judged(self, model: Backend, done: Done) -> Judged:
        """Judge a model in INT8 with the rest in float32."""
        agreement = self._agreement(model)
        layers = f"{len(done.quantised)} of {len(done.quantised) + len(done.left)} layers in INT8"
        if done.is_transformer:
            layers += ", quantised as a transformer"
        if not done.quantised:
            return Judged(agreement, "no layer of the model could be quantised", "")
        if agreement.at_least < self._trials.agreement:
            wanted = percent(self._trials.agreement)
            return Judged(agreement, f"{agreement.described()}, accuracyAgreement asks for {wanted}", layers)
        return Judged(agreement, "", f"{agreement.described()}; {layers}")

    def judged_with_bfloat16(self, model: Backend, before: Judged, gain: str) -> Judged:
        """Judge the same model with the rest in bfloat16, which is faster. A refusal leaves the judgement as it was before."""
        agreement = self._agreement(model)
        note = f"{before.note}; with the rest in bfloat16 {agreement.described()}, {gain}"
        if agreement.at_least < self._trials.agreement:
            return replace(before, note=f"{note}: refused")
        return replace(before, agreement=agreement, note=note, rest="bf16")

    def _agreement(self, model: Backend) -> Agreement:
        """Run both models on every record."""
        agreeing = judged = 0
        for at in range(self._half.items):
            inputs, labels = self._half.item(at)
            expected, found = self._expected(inputs), self._with_rows(model.run(inputs))
            agree = self._judge(expected, found, labels)
            agreeing, judged = agreeing + int(agree.sum()), judged + len(agree)
        return Agreement(agreeing, judged)

    def _expected(self, inputs: dict[str, Array]) -> dict[str, Array]:
        try:
            answers = self._reference.run(inputs)
        except Exception as error:  # a model may raise anything
            raise ModelError(f"calibrationData {self._trials.data}: the model fails on it: {error}") from error
        return self._with_rows(answers)

    def _with_rows(self, answers: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs with a row for each record. A model may answer one record without a batch dimension."""
        found: dict[str, Array] = {}
        for name in self._outputs:
            array, size = answers[name], self._size
            if not array.ndim or len(array) != size:
                if size > 1:
                    raise ModelError(
                        f"output {name!r} has shape {[*array.shape]} for {size} records, and INT8 cannot be judged"
                    )
                array = array[np.newaxis]
            found[name] = array.copy()  # the next run may use the memory
        return found


def _halves(reference: Backend, trials: Trials) -> tuple[_Half, _Half]:
    """Return the half of the data that calibrates, and the half that judges.

    Raises:
        ModelError: the data do not fit the model, or are too few to prove the agreement.
    """
    path = Path(trials.data)
    arrays = samples(path, reference.inputs, trials.images, MOST_RECORDS)
    axes = {spec.name: spec.batch_axis for spec in reference.inputs}
    counts = [array.shape[axis] for name, array in arrays.items() if (axis := axes.get(name, 0)) is not None]
    if not counts:
        raise ModelError(f"calibrationData {path}: it is one call, and INT8 needs records that are rows of a batch")
    size, rows = fixed_batch(reference) or 1, counts[0]
    labels = labels_of(path, reference.inputs, rows)
    judges = rows // 2 // size * size
    needed = records_needed(trials.agreement, size)
    if needed is None or judges < needed // 2:
        told = "more records than there can be" if needed is None else f"{needed} records"
        raise ModelError(
            f"calibrationData {path} has {rows} records, and half of them judge INT8: to prove that {percent(trials.agreement)} "
            f"agree takes {told}; give more, or set accuracyAgreement lower"
        )
    drawn = np.random.default_rng(0).permutation(rows)  # data may be sorted by class, or classes take turns
    calibrating = drawn[judges:][: max(_MOST_TO_CALIBRATE, size)]
    return _half(calibrating, arrays, axes, labels, size), _half(drawn[:judges], arrays, axes, labels, size)


def _half(
    rows: NDArray[np.int64], arrays: dict[str, Array], axes: dict[str, int | None], labels: Array | None, size: int
) -> _Half:
    items = len(rows) // size
    calls = rows[: items * size].reshape(items, size)

    def stacked(name: str) -> Array:
        axis, array = axes.get(name, 0), arrays[name]
        return np.stack([array if axis is None else array.take(call, axis=axis) for call in calls])

    return _Half(items, {name: stacked(name) for name in arrays}, None if labels is None else labels[calls])


def _names(layers: Sequence[str]) -> str:
    more = len(layers) - _NAMED
    return ", ".join(layers[:_NAMED]) + (f" and {more} more" if more > 0 else "")
