"""Conditions under which a result about a model is kept and found again: processor, versions and settings."""

import hashlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from cluster_serving import __version__
from cluster_serving.node.config.loading import Config
from cluster_serving.node.topology.cpulist import text_of

CPUINFO = Path("/proc/cpuinfo")
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
_IMAGES = (
    "image_resize",
    "image_channels",
    "image_channel_order",
    "image_layout",
    "image_decoding",
    "image_mean",
    "image_scale",
)
_OTHER_VERSIONS = ("nncf", "numpy", "python")  # of the process that makes a model in INT8, which another one may serve
_SETTINGS_OF_PROOF = {
    *_IMAGES,  # of calibrationData
    "accuracy_agreement",
    "accuracy_metric",
    "accuracy_tolerance",
    "calibration_data",
    "model_inputs",
    "model_outputs",
    "model_signature",
    "padding",
}


def of_runtime(config: Config, backend: str, cpuinfo: Path = CPUINFO) -> dict[str, Any]:
    """Return the processor and the versions that run the models of a backend.

    The features of the processor are included, because virtual machines may give a processor any name.
    """
    names = {"numpy", *_DISTRIBUTIONS.get(backend, ()), *(["openvino"] if config.engine != "native" else [])}
    if config.precision in ("auto", "int8"):
        names |= {"openvino", "nncf"}
    versions = {"cluster-serving": __version__, "python": platform.python_version()}
    for name in sorted(names):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "processor": _of_processor("model name", cpuinfo) or platform.machine(),
        "features": hashlib.sha256(_of_processor("flags", cpuinfo).encode()).hexdigest()[:_DIGITS],
        "versions": versions,
    }


def of_proof(config: Config, backend: str) -> dict[str, Any]:
    """Return everything that decides about a model in INT8, and whether rows may share a batch, except the model and the runtime.

    `batching` is not included: a fault that `auto` has found is a warning for `rows`. The code of a Python model may import any
    package.
    """
    conditions = of_runtime(config, backend)
    conditions |= {"settings": config.model_dump(mode="json", include=_SETTINGS_OF_PROOF)}
    if backend == "python" or config.allow_pickle:
        # The names of all installed packages with their versions, as in `torch-2.9.0.dist-info`.
        conditions["packages"] = sorted({path.name for folder in sys.path for path in Path(folder).glob("*-info")})
    else:
        for name in _OTHER_VERSIONS:
            conditions["versions"].pop(name, None)
    return conditions


def key_of(conditions: dict[str, Any]) -> str:
    """Return conditions as part of a file name."""
    return hashlib.sha256(msgspec.json.encode(conditions, order="deterministic")).hexdigest()[:_DIGITS]


def _of_processor(wanted: str, cpuinfo: Path) -> str:
    """Return a field of the first core in /proc/cpuinfo. Empty: the kernel does not report the field."""
    lines = (line.partition(":") for line in text_of(cpuinfo).splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == wanted), "")
