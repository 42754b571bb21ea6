"""Records of a load: the user's own, or made up from the inputs that the model declares."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cluster_serving.client.servers.process.exit_codes import ModelFault
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.calibration import random_batch, samples
from cluster_serving.node.models.base import Array, ModelError, TensorSpec, open_inputs
from cluster_serving.node.models.calibration_data import image_files
from cluster_serving.node.tuning.errors import TuningError

_MOST_RECORDS = 16
_MOST_BYTES = 8 << 20


def made_up(inputs: Sequence[TensorSpec], *, calls: bool = False) -> Iterator[dict[str, Array]]:
    """Yield a few records of random numbers by the names of the inputs. `calls`: each record is a call of the model by itself.

    Raises:
        TuningError: the model does not declare the shape of a row.
    """
    batch = random_batch(inputs, _rows(inputs))
    if not batch:
        told = "; ".join(spec.describe() for spec in inputs) or "any number of tensors"
        raise TuningError(f"no records can be made up for a model that takes {told}: say its sizes in modelInputs")
    yield from _of_rows(batch, inputs, calls)


def records(config: Config, inputs: Sequence[TensorSpec], *, calls: bool = False) -> list[list[bytes]]:
    """Return a few records in wire format, without a uri.

    Args:
        config: names `calibrationData`, if the user has calibration data. Images in a folder stay encoded, for the workers to
            decode.
        inputs: inputs of the model.
        calls: each record is a call of the model by itself.

    Raises:
        TuningError: there is no calibration data, and the model does not declare the shape of a row.
        ModelFault: the calibration data cannot be read, or does not fit the model.
    """
    if not config.calibration_data:
        try:
            return [encode_record("-", record)[2:] for record in made_up(inputs, calls=calls)]
        except TuningError as error:
            raise TuningError(f"{error}, or name records in calibrationData") from error
    path = Path(config.calibration_data)
    rows = _rows(inputs)
    try:
        batch = samples(path, inputs, config.image_options(), rows)
    except ModelError as error:
        raise ModelFault(str(error)) from error
    if not path.is_dir() or config.record_encrypted:
        return [encode_record("-", record)[2:] for record in _of_rows(batch, inputs, calls)]
    (name,) = batch
    return [encode_record("-", {name: file.read_bytes()})[2:] for file in image_files(path)[:rows]]


def _rows(inputs: Sequence[TensorSpec]) -> int:
    return max(1, min(_MOST_RECORDS, _MOST_BYTES // max(1, sum(spec.row_bytes for spec in inputs))))


def _of_rows(batch: Mapping[str, Array], inputs: Sequence[TensorSpec], calls: bool) -> Iterator[dict[str, Array]]:
    """Yield a record for each row of the batch, or the one record that is the call."""
    specs = inputs or open_inputs(len(batch), None if calls else 0)
    counts = [rows for spec, array in zip(specs, batch.values(), strict=True) if (rows := spec.rows_of(array))]
    for at in range(counts[0] if counts else 1):
        record: dict[str, Array] = {}
        for spec, (name, array) in zip(specs, batch.items(), strict=True):
            axis = spec.batch_axis
            record[name] = array if axis is None else np.asarray(array.take(at, axis))
        yield record
