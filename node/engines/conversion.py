"""Models of other formats, run by OpenVINO instead of their native backend.

Clients bind by name: whatever OpenVINO calls the inputs and outputs, their names, order and dtypes stay those of the native
backend, which is therefore loaded first.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cluster_serving.node.engines.warm_up import TrialRun, fixed_batch, trial
from cluster_serving.node.models.base import Array, Backend, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import FORMATS, Detected
from cluster_serving.node.models.openvino import compile_model, ov, reason

_READ_FROM_DISK = ("onnx",)
_TRIED_ROWS = 2  # tracing may take a size of one for a constant
_ADDED_TO_NAMES = re.compile(r"(/sink_port_\d+|:0)$")


@runtime_checkable
class Convertible(Backend, Protocol):
    """A native backend that can hand its model to OpenVINO."""

    def convertible(self) -> Any:
        """A torch module or program, or a concrete function of TensorFlow: whatever `openvino.convert_model` reads.

        It takes tensors in the order of `inputs`, and gives them in the order of `outputs`.
        """
        ...


class ConvertedBackend:
    """A model that OpenVINO has compiled, under the names of its native backend."""

    def __init__(
        self, request: Any, native: Backend, ports_in: Sequence[int], results: Sequence[tuple[str, int, str]]
    ) -> None:
        self.inputs = native.inputs
        self.outputs = native.outputs
        self._request = request
        self._ports_in = {spec.name: port for spec, port in zip(native.inputs, ports_in, strict=True)}
        self._results = tuple(results)

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, which is read in place.

        The arrays returned are the request's own memory: they are valid until the next run.
        """
        inputs = {port: batch[name] for name, port in self._ports_in.items()}
        results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        return {name: results[port].astype(dtype, copy=False) for name, port, dtype in self._results}


def convert(detected: Detected, native: Backend, options: LoadOptions) -> ConvertedBackend:
    """Let OpenVINO read a model that another backend has loaded; `native` can be freed afterwards.

    Raises:
        ModelError: OpenVINO cannot read the model, or what it makes of it does not fit the native inputs and outputs.
    """
    path = detected.definition
    _refuse(detected, native)
    tried = trial(native, fixed_batch(native) or _TRIED_ROWS)
    outputs = _outputs(native, tried, path)
    try:
        model = _read(detected, native, tried)
        ordered = isinstance(native, Convertible)
        ports_in = _bind("inputs", [spec.name for spec in native.inputs], model.inputs, path, ordered)
        ports_out = _bind("outputs", list(outputs), model.outputs, path, ordered)
        for spec, port in zip(native.inputs, ports_in, strict=True):
            _pin(model.get_parameters()[port], spec)
        model.validate_nodes_and_infer_types()
        request = compile_model(model, options).create_infer_request()
    except ModelError:
        raise
    except Exception as error:  # the converters raise errors of all kinds, those of the frameworks among them
        raise ModelError(
            f"{path} cannot be run by OpenVINO {ov.get_version()}: {reason(error)}; set engine: native"
        ) from error
    results = [(name, port, dtype) for (name, dtype), port in zip(outputs.items(), ports_out, strict=True)]
    return ConvertedBackend(request, native, ports_in, results)


def _refuse(detected: Detected, native: Backend) -> None:
    """What need not be tried."""
    why = ""
    if any(spec.is_text for spec in (*native.inputs, *native.outputs)):
        why = "OpenVINO cannot take or give text"
    elif isinstance(native, Convertible):
        return
    elif detected.format not in _READ_FROM_DISK:
        why = f"OpenVINO cannot read the format {FORMATS[detected.format].title}"
    if why:
        raise ModelError(f"{detected.definition}: {why}; set engine: native")


def _outputs(native: Backend, tried: TrialRun | None, path: Path) -> dict[str, str]:
    """Name and dtype of each output, which only a run may tell."""
    if native.outputs:
        return {spec.name: spec.dtype for spec in native.outputs}
    if tried is None:
        raise ModelError(
            f"{path} does not tell what it takes, which OpenVINO must know: set modelInputs, as in image float32 [N,3,224,224], "
            "or engine: native"
        )
    return {name: array.dtype.name for name, array in tried.outputs.items()}


def _read(detected: Detected, native: Backend, tried: TrialRun | None) -> Any:
    if isinstance(native, Convertible):
        source = native.convertible()
        return ov.convert_model(source, example_input=_example(source, tried))
    return ov.Core().read_model(detected.definition)


def _example(source: Any, tried: TrialRun | None) -> Any:
    """Tensors to trace a plain torch module with; what is scripted or exported tells by itself what it does."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(source, torch.nn.Module) or isinstance(source, torch.jit.ScriptModule):
        return None
    return tried and tuple(map(torch.from_numpy, tried.inputs.values()))


def _bind(kind: str, names: Sequence[str], ports: Sequence[Any], path: Path, ordered: bool) -> list[int]:
    """For each name the index of its port: by name if OpenVINO knows them all, else by position if that is sure."""
    found = [_find(name, ports) for name in names]
    known = [port for port in found if port is not None]
    if len(set(known)) == len(names):
        return known
    if len(ports) == len(names) and (ordered or len(names) == 1):
        return list(range(len(names)))
    theirs = ", ".join(_plain(port.node.friendly_name) for port in ports)
    raise ModelError(f"{path}: OpenVINO finds the {kind} {theirs} instead of {', '.join(names)}; set engine: native")


def _find(name: str, ports: Sequence[Any]) -> int | None:
    """The port of this name; several may carry the same tensor, so the name of the port's own node is the first to count."""
    wanted = _plain(name)
    own = [at for at, port in enumerate(ports) if _plain(port.node.friendly_name) == wanted]
    any_of = [at for at, port in enumerate(ports) if wanted in map(_plain, port.names)]
    return next(iter((*own, *any_of)), None)


def _plain(name: str) -> str:
    return _ADDED_TO_NAMES.sub("", name)


def _pin(parameter: Any, spec: TensorSpec) -> None:
    """Tell a parameter the dtype and shape of an input: models of torch leave both open."""
    parameter.set_element_type(ov.Type(np.dtype(spec.dtype)))
    if spec.shape is not None:
        shape = ov.PartialShape([-1 if dim is None else dim for dim in spec.shape])
        if not parameter.get_partial_shape().compatible(shape):
            raise ValueError(f"it gives {spec.describe()} the shape {parameter.get_partial_shape()}")
        parameter.set_partial_shape(shape)
