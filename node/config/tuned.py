"""Store of tuning results in the job's own directory. A result is found again as long as its conditions stay the same.

    tuned/<conditions>-<fingerprint of the model>.json

The conditions are hashed: processor, budget, versions, and every setting that can change the best choice. A look at the
conditions costs nothing. The model, which may have gigabytes, is read only if the conditions fit.
"""

import hashlib
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import structlog

from cluster_serving import __version__
from cluster_serving.node.config.choice import Choice, Given
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.fingerprint import fingerprint
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.cpulist import text_of

log = structlog.get_logger(__name__)

_CPUINFO = Path("/proc/cpuinfo")
_DIGITS = 16
_DISTRIBUTIONS = {
    "onnx": ("onnxruntime",),
    "openvino": ("openvino",),
    "tensorflow": ("tensorflow-cpu", "tensorflow"),
    "keras": ("keras", "tensorflow-cpu", "tensorflow"),
    "torch": ("torch",),
    "caffe": ("opencv-python-headless",),
    "bigdl": ("torch",),
    "python": (),
}
_SETTINGS = {
    *("model_parallelism", "thread_per_model", "core_number_per_machine", "batch_size", "objective", "pinning"),
    *("engine", "precision", "accuracy_tolerance", "calibration_data"),
    *("model_inputs", "model_outputs", "model_signature"),
    *(
        "post_processing",
        "labels",
        "processing",
        "batching",
        "input_already_batched",
        "deterministic",
        "max_batch_delay_ms",
        "slot_bytes",
    ),
    *("image_resize", "image_channels", "image_channel_order", "image_layout", "image_mean", "image_scale"),
}


class Tuned(msgspec.Struct, frozen=True):
    """Measured choice. People can read the `conditions` of the measurement, and the whole report in `found`."""

    choice: Choice
    measured_ms: int
    conditions: dict[str, Any]
    found: dict[str, Any]

    @property
    def day(self) -> str:
        """Day of the measurement in UTC, such as `2026-11-22`."""
        return time.strftime("%Y-%m-%d", time.gmtime(self.measured_ms / 1000))


def conditions(config: Config, backend: str, budget: Budget, cpuinfo: Path = _CPUINFO) -> dict[str, Any]:
    """Return everything that decides the best choice, except the model.

    The features of the processor are included, because virtual machines may give a processor any name.
    """
    names = {"numpy", *_DISTRIBUTIONS.get(backend, ()), *(["openvino"] if config.engine != "native" else [])}
    versions = {"cluster-serving": __version__, "python": platform.python_version()}
    for name in sorted(names):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "processor": _of_processor("model name", cpuinfo) or platform.machine(),
        "features": hashlib.sha256(_of_processor("flags", cpuinfo).encode()).hexdigest()[:_DIGITS],
        "cores": len(budget.cores),
        "physical": budget.physical,
        "domains": len({core.domain for core in budget.cores}),
        "quota": budget.quota,
        "versions": versions,
        "settings": config.model_dump(mode="json", include=_SETTINGS),
    }


def key_of(found: dict[str, Any]) -> str:
    """Return the conditions as part of a file name."""
    return hashlib.sha256(msgspec.json.encode(found, order="deterministic")).hexdigest()[:_DIGITS]


class Store:
    """Tuning results of a job on this machine. `directory` is the job's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "tuned"

    def find(self, config: Config, model: Detected, budget: Budget, model_hash: str = "") -> Tuned | None:
        """Return the choice measured under exactly these conditions. None: there is no result, or `tuning` is off.

        `model_hash` is the model's fingerprint, if known. Computing the fingerprint may take long.
        """
        if config.tuning == "off" or not is_open(config, model.backend):
            return None
        key = key_of(conditions(config, model.backend, budget))
        if not any(self._directory.glob(f"{key}-*.json")):
            return None
        try:
            file = self._directory / f"{key}-{_hash(model_hash or fingerprint(model))}.json"
            return msgspec.json.decode(file.read_bytes(), type=Tuned)
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
        tuned = Tuned(choice, time.time_ns() // 1_000_000, known, found)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._directory / f"{key_of(known)}-{_hash(model_hash)}.json"
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(tuned)))
        return draft.replace(file)


def is_open(config: Config, backend: str) -> bool:
    """Return whether the config leaves a choice open."""
    return config.runtime.is_open or not Given.by(config, backend).is_all


def _hash(model_hash: str) -> str:
    return model_hash.rpartition(":")[2]


def _of_processor(wanted: str, cpuinfo: Path) -> str:
    """Return a field of the first core in /proc/cpuinfo. Empty: the kernel does not report the field."""
    lines = (line.partition(":") for line in text_of(cpuinfo).splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == wanted), "")
