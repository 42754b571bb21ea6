"""ONNX models, run by ONNX Runtime."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

# From version 1.29 on, ONNX Runtime would tell Microsoft about each model.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort

from cluster_serving.node.models import narrow
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.batch_axes import axes_of_inputs, axes_of_outputs
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.narrow import NARROW
from cluster_serving.node.models.sealed import in_memory

_DTYPES = {
    "tensor(bool)": "bool",
    "tensor(double)": "float64",
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(int8)": "int8",
    "tensor(int16)": "int16",
    "tensor(int32)": "int32",
    "tensor(int64)": "int64",
    "tensor(string)": "str",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
}
_FATAL_ONLY = 4  # every error is an exception too
_MAPS = re.compile(r"seq\(map\(.*\)\)")
_SEQUENCE = re.compile(r"(?:optional\()?(?:seq\()?(tensor\(\w+\))\)+")
_NO_MODEL = ("Protobuf parsing failed", "No graph was found")
# Place in ONNX Runtime's source at which an error arose: `/onnxruntime_src/x.h:46 void f(const T&) ` or `x.cc:461 Function `.
_SOURCE = re.compile(r"\S*\.(?:cc|h):\d+ (?:[^()]*\(.*?\) |\w+ )")


class OnnxBackend:
    """A session of ONNX Runtime on the CPU."""

    def __init__(self, session: ort.InferenceSession, options: LoadOptions, path: Path) -> None:
        # get_inputs() leaves out initializers that may be overridden, for every IR version of the file.
        takes, gives = session.get_inputs(), session.get_outputs()
        dims_in, dims_out = [value.shape for value in takes], [value.shape for value in gives]
        self.inputs = options.shaped(
            [_spec(value, axis, path) for value, axis in zip(takes, axes_of_inputs(dims_in), strict=True)]
        )
        elsewhere = any(spec.batch_axis for spec in self.inputs)
        self.outputs = tuple(
            _spec(value, axis, path)
            for value, axis in zip(gives, axes_of_outputs(dims_out, dims_in, rows_elsewhere=elsewhere), strict=True)
        )
        if not self.inputs:
            raise ModelError(f"{path} has no inputs: there is nothing to send it; export the model with its inputs.")
        self._session = session
        self._names = [spec.name for spec in self.outputs]
        self._narrow_inputs = {value.name: NARROW[value.type] for value in takes if value.type in NARROW}
        self._narrow_outputs = {value.name: NARROW[value.type] for value in gives if value.type in NARROW}
        self._nested_inputs = [spec.name for spec in self.inputs if spec.is_nested]
        self._nested_outputs = [spec for spec in self.outputs if spec.is_nested]

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, which is read in place. Text is an array of `str` objects. The results are new.

        A sequence is the only item of an array of objects. The maps of the rows are an array of objects.
        """
        if self._nested_inputs:
            batch = {**batch, **{name: batch[name].item() for name in self._nested_inputs}}
        results: Any
        if self._narrow_inputs or self._narrow_outputs:
            results = narrow.run(self._session, batch, self._narrow_inputs, self._narrow_outputs, self._names)
        else:
            results = self._session.run(self._names, batch)
        outputs = dict(zip(self._names, results, strict=True))
        for spec in self._nested_outputs:
            is_rows = spec.dtype == "map"
            items: list[Any] = outputs[spec.name] if is_rows else [outputs[spec.name]]
            array = np.empty(len(items), object)
            for at, item in enumerate(items):
                array[at] = item
            outputs[spec.name] = array if is_rows else array.reshape(())
        return outputs


def load(detected: Detected, options: LoadOptions) -> OnnxBackend:
    """Load an ONNX file with the external data that lies beside the file.

    Args:
        detected: place of the file.
        options: number of threads for an operator. ONNX Runtime computes in the types that the file states.

    Raises:
        ModelError: the file is broken, an operator is unknown here, or an input or output is neither numbers nor text.
    """
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.inter_op_num_threads = 1
    settings.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    settings.log_severity_level = _FATAL_ONLY
    # A thread that spins while waiting takes a core away from the reader, the writer and the other workers.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = detected.definition
    external: dict[str, Array] = {}  # read while the session is made
    if in_memory(path):
        # An encrypted model: the files beside it, decrypted too, are memory maps by name. From version 1.24 on, ONNX Runtime
        # does not follow links out of the model's directory, but takes files that are in memory.
        files = [
            file for file in path.parent.rglob("*") if file != path and in_memory(file) and file.stat().st_size > 0
        ]
        external = {str(file.relative_to(path.parent)): np.memmap(file, np.uint8, "r") for file in files}
    if external and (give := getattr(settings, "add_external_initializers_from_files_in_memory", None)):
        give(list(external), list(external.values()), [len(content) for content in external.values()])
    try:
        session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # the error classes of ONNX Runtime have no common base class
        # The text is `[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from <path> failed:<reason>`.
        text = str(error).split(" : ", 3)[-1]
        if any(sign in text for sign in _NO_MODEL):
            reason = "it was cut short, is encrypted (modelEncrypted: true opens it), or is no ONNX file."
        else:
            reason = _SOURCE.sub("", text.rpartition(" failed:")[2]).strip().split("\n")[0]
        raise ModelError(f"{path} cannot be loaded by ONNX Runtime {ort.__version__}: {reason}") from error
    return OnnxBackend(session, options, path)


def _spec(value: Any, batch_axis: int | None, path: Path) -> TensorSpec:
    if _MAPS.fullmatch(value.type):  # of classifiers converted from scikit-learn: a map for each row
        return TensorSpec(value.name, "map", (None,))
    if (sequence := _SEQUENCE.fullmatch(value.type)) and (dtype := _DTYPES.get(sequence[1])):
        return TensorSpec(value.name, f"sequence({dtype})", None, None)
    dtype = NARROW[value.type].dtype if value.type in NARROW else _DTYPES.get(value.type)
    if dtype is None:
        raise ModelError(f"{path}: {value.name!r} is a {value.type}, which cannot be served.")
    # A free dimension is a name or None. No dimensions are those of a single number, or leave the rank open.
    shape = tuple(dim if isinstance(dim, int) and dim >= 0 else None for dim in value.shape)
    return TensorSpec(value.name, dtype, shape or None, batch_axis)
