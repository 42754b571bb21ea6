"""Store of tuning results in the job's own directory. A result is found again as long as its conditions stay the same.

    tuned/<conditions>-<fingerprint of the model>.json

The conditions are hashed: processor, budget, versions, and every setting that can change the best choice. A look at the
conditions costs nothing. The model, which may have gigabytes, is read only if the conditions fit.
"""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from cluster_serving.client.servers.process.whole_file import whole_file
from cluster_serving.node.config.choice import Choice, Given
from cluster_serving.node.config.conditions import CPUINFO, key_of, of_runtime
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.calibration_data import data_hash
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.topology.budget import Budget

log = structlog.get_logger(__name__)

_SETTINGS = {
    *("model_parallelism", "thread_per_model", "core_number_per_machine", "batch_size", "objective", "pinning"),
    *("engine", "precision", "accuracy_tolerance", "accuracy_agreement", "accuracy_metric", "calibration_data"),
    *("model_inputs", "model_outputs", "model_signature"),
    *(
        "post_processing",
        "labels",
        "processing",
        "output_dtype",
        "batching",
        "padding",
        "input_already_batched",
        "deterministic",
        "max_batch_delay_ms",
        "slot_bytes",
    ),
    *(
        "image_resize",
        "image_channels",
        "image_channel_order",
        "image_layout",
        "image_decoding",
        "image_mean",
        "image_scale",
    ),
}


class Tuned(msgspec.Struct, frozen=True):
    """Measured choice. People can read the `conditions` of the measurement, and the whole report in `found`.

    `data`: hash of the records that have proven INT8, if INT8 was chosen.
    """

    choice: Choice
    measured_ms: int
    conditions: dict[str, Any]
    found: dict[str, Any]
    data: str = ""

    @property
    def day(self) -> str:
        """Day of the measurement in UTC, such as `2026-11-22`."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.measured_ms / 1000))


def conditions(config: Config, backend: str, budget: Budget, cpuinfo: Path = CPUINFO) -> dict[str, Any]:
    """Return everything that decides the best choice, except the model."""
    return of_runtime(config, backend, cpuinfo) | {
        "cores": len(budget.cores),
        "physical": budget.physical,
        "domains": len({core.domain for core in budget.cores}),
        "quota": budget.quota,
        "settings": config.model_dump(mode="json", include=_SETTINGS),
    }


class Store:
    """Tuning results of a job on this machine. `directory` is the job's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "tuned"

    def find(self, config: Config, model: Detected, budget: Budget, model_hash: str = "") -> Tuned | None:
        """Return the choice measured under exactly these conditions. None: there is no result, or `tuning` is off.

        The runtime is open again where it is INT8, and was proven by other records than there are now.

        `model_hash` is the model's fingerprint, if known. Computing the fingerprint may take long.
        """
        if config.tuning == "off" or not is_open(config, model.backend):
            return None
        key = key_of(conditions(config, model.backend, budget))
        if not any(self._directory.glob(f"{key}-*.json")):
            return None
        try:
            file = self._directory / f"{key}-{_hash(model_hash or fingerprint(model))}.json"
            tuned = msgspec.json.decode(file.read_bytes(), type=Tuned)
            if tuned.data == _data(config, tuned.choice):
                return tuned
            return replace(tuned, choice=replace(tuned.choice, runtime=config.runtime))
        except FileNotFoundError:
            return None
        except (ModelError, OSError, msgspec.DecodeError) as error:
            log.warning("the tuning result cannot be read", reason=str(error))
            return None

    def keep(
        self, config: Config, backend: str, model_hash: str, budget: Budget, choice: Choice, found: dict[str, Any]
    ) -> Path:
        """Write a choice and its report to a file, and return the path of the file.

        Raises:
            OSError: the file cannot be written.
        """
        known = conditions(config, backend, budget)
        tuned = Tuned(choice, time.time_ns() // 1_000_000, known, found, _data(config, choice))
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._directory / f"{key_of(known)}-{_hash(model_hash)}.json"
        with whole_file(file) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(tuned)))
        return file


def is_open(config: Config, backend: str) -> bool:
    """Return whether the config leaves a choice open."""
    return config.runtime.is_open or not Given.by(config, backend).is_all


def _data(config: Config, choice: Choice) -> str:
    """Return the hash of the records that prove a choice of INT8. Empty: another precision, or records that cannot be read."""
    if choice.runtime.precision == "int8":
        with suppress(ModelError):  # a worker says why
            return data_hash(config.calibration_data, config.accuracy_metric)
    return ""


def _hash(model_hash: str) -> str:
    return model_hash.rpartition(":")[2]
