"""Models with a native backend of their own, run by OpenVINO instead of the native backend.

Clients bind inputs and outputs by name, and OpenVINO may rename both. Names, order and dtypes therefore stay as in the native
backend, and the native backend is loaded first.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from cluster_serving.node.engines.warm_up import TrialRun, fixed_batch, trial
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import FORMATS, Detected
from cluster_serving.node.models.openvino import compile_model, narrowed, ov, reason, refuse_wide

_READ_FROM_DISK = ("onnx", "openvino")
_TRIED_ROWS = 2  # tracing may take a size of 1 for a constant
_ADDED_TO_NAMES = re.compile(r"(/sink_port_\d+|:0)$")


@runtime_checkable
class Convertible(Backend, Protocol):
    """Native backend that can hand its model to OpenVINO."""

    def convertible(self) -> Any:
        """Return the model for `openvino.convert_model`: a torch module or program, or a concrete function of TensorFlow.

        The model takes tensors in the order of `inputs`, and returns tensors in the order of `outputs`.
        """
        ...


class ConvertedBackend:
    """Model compiled by OpenVINO, with the input and output names of the native backend."""

    def __init__(
        self, compiled: Any, native: Backend, ports_in: Sequence[int], results: Sequence[tuple[str, int, str]]
    ) -> None:
        self.inputs = native.inputs
        self.outputs = native.outputs
        self._request = compiled.create_infer_request()
        self._ports_in = {spec.name: port for spec, port in zip(native.inputs, ports_in, strict=True)}
        ports = narrowed(compiled)
        self._narrowed = [name for name, port in self._ports_in.items() if port in ports]
        self._results = tuple(results)

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, reading `batch` in place.

        The returned arrays are memory of the OpenVINO request, and are valid until the next run.

        Raises:
            ModelError: a whole number has more than 32 bits.
        """
        refuse_wide(batch, self._narrowed, "; set engine: native")
        inputs = {port: batch[name] for name, port in self._ports_in.items()}
        results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return {name: results[port].astype(dtype, copy=False) for name, port, dtype in self._results}


class Converted(NamedTuple):
    """Model as OpenVINO reads it, not compiled yet.

    `ports_in` has the model's port of each input of the native backend. `results` has name, port and dtype of each output.
    """

    model: Any
    path: Path
    ports_in: Sequence[int]
    results: Sequence[tuple[str, int, str]]

    def compiled(self, native: Backend, options: LoadOptions, model: Any = None) -> ConvertedBackend:
        """Compile the model, or another `model` with the same ports, such as the same model in INT8.

        Raises:
            ModelError: OpenVINO cannot run the model.
        """
        try:
            compiled = compile_model(self.model if model is None else model, options)
            return ConvertedBackend(compiled, native, self.ports_in, self.results)
        except RuntimeError as error:
            raise _not_run(self.path, error) from error


def convert(detected: Detected, native: Backend, options: LoadOptions) -> ConvertedBackend:
    """Convert and compile a model after the native backend has loaded the model. `native` can be freed afterwards.

    Raises:
        ModelError: OpenVINO cannot read or run the model, or the converted model does not fit the native inputs and outputs.
    """
    return as_openvino(detected, native).compiled(native, options)


def as_openvino(detected: Detected, native: Backend) -> Converted:
    """Convert a model after the native backend has loaded the model.

    Raises:
        ModelError: OpenVINO cannot read the model, or the converted model does not fit the native inputs and outputs.
    """
    path = detected.definition
    # Refuse a model that OpenVINO certainly cannot run, before the trial run.
    if not all(spec.is_numeric for spec in (*native.inputs, *native.outputs)):
        raise ModelError(f"{path}: OpenVINO cannot take or give text, sequences and maps; set engine: native")
    if not isinstance(native, Convertible) and detected.format not in _READ_FROM_DISK:
        title = FORMATS[detected.format].title
        raise ModelError(f"{path}: OpenVINO cannot read the format {title}; set engine: native")
    tried = trial(native, fixed_batch(native) or _TRIED_ROWS)
    outputs = _outputs(native, tried, path)
    try:
        model = _read(detected, native, tried)
        ordered = isinstance(native, Convertible) or detected.backend == "openvino"
        ports_in = _bind("inputs", [spec.name for spec in native.inputs], model.inputs, path, ordered)
        ports_out = _bind("outputs", list(outputs), model.outputs, path, ordered)
        for spec, port in zip(native.inputs, ports_in, strict=True):
            _pin(model.get_parameters()[port], spec)
        model.validate_nodes_and_infer_types()
        model = _without_bfloat16(model)
    except ModelError:
        raise
    except Exception as error:  # the converters raise errors of all kinds, framework errors included
        raise _not_run(path, error) from error
    results = [(name, port, dtype) for (name, dtype), port in zip(outputs.items(), ports_out, strict=True)]
    return Converted(model, path, ports_in, results)


def _not_run(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path} cannot be run by OpenVINO {ov.get_version()}: {reason(error)}; set engine: native")


def _outputs(native: Backend, tried: TrialRun | None, path: Path) -> dict[str, str]:
    """Return the dtype of each output by name. Without declared outputs, only the trial run tells names and dtypes."""
    if native.outputs:
        return {spec.name: spec.dtype for spec in native.outputs}
    if tried is None:
        raise ModelError(
            f"{path} does not declare its inputs, and OpenVINO needs them: set modelInputs, as in image float32 [N,3,224,224], "
            "or engine: native"
        )
    return {name: array.dtype.name for name, array in tried.outputs.items()}


def _read(detected: Detected, native: Backend, tried: TrialRun | None) -> Any:
    """Return the model as OpenVINO reads it from the native backend or from the disk."""
    if not isinstance(native, Convertible):
        return ov.Core().read_model(detected.definition, detected.weights)
    source = native.convertible()
    example: Any = None
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module) and not isinstance(source, torch.jit.ScriptModule):
        # OpenVINO traces a plain torch module on tensors. Scripted and exported models need no tracing.
        example = tried and tuple(map(torch.from_numpy, tried.inputs.values()))
    return ov.convert_model(source, example_input=example)


def _bind(kind: str, names: Sequence[str], ports: Sequence[Any], path: Path, ordered: bool) -> list[int]:
    """Return the index of the port for each name: by name if OpenVINO knows all names, else by position if the order is sure."""
    known: list[int] = []
    for name in names:
        wanted = _plain(name)
        own = [at for at, port in enumerate(ports) if _plain(port.node.friendly_name) == wanted]
        any_of = [at for at, port in enumerate(ports) if wanted in map(_plain, port.names)]
        # Several ports may carry the same tensor, so the name of a port's own node counts first.
        known += (*own, *any_of)[:1]
    if len(set(known)) == len(names):
        return known
    if len(ports) == len(names) and (ordered or len(names) == 1):
        return list(range(len(names)))
    theirs = ", ".join(_plain(port.node.friendly_name) for port in ports)
    raise ModelError(f"{path}: OpenVINO finds the {kind} {theirs} instead of {', '.join(names)}; set engine: native")


def _without_bfloat16(model: Any) -> Any:
    """Return the model with float32 in place of bfloat16 outputs, whose memory OpenVINO gives to numpy as float16."""
    found = [at for at, port in enumerate(model.outputs) if port.element_type == ov.Type.bf16]
    if not found:
        return model
    processor = ov.preprocess.PrePostProcessor(model)
    for at in found:
        processor.output(at).tensor().set_element_type(ov.Type.f32)
    return processor.build()


def _plain(name: str) -> str:
    return _ADDED_TO_NAMES.sub("", name)


def _pin(parameter: Any, spec: TensorSpec) -> None:
    """Set a parameter's dtype and shape from the model input, because torch models leave both open."""
    parameter.set_element_type(ov.Type(np.dtype(spec.dtype)))
    if spec.shape is not None:
        shape = ov.PartialShape([-1 if dim is None else dim for dim in spec.shape])
        if not parameter.get_partial_shape().compatible(shape):
            raise ValueError(f"it gives {spec.describe()} the shape {parameter.get_partial_shape()}")
        parameter.set_partial_shape(shape)
