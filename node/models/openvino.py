"""OpenVINO IR models, run by OpenVINO's CPU plugin."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import Detected

# OpenVINO reports its import and its conversions to Google Analytics, from separate processes, unless the package
# openvino_telemetry is missing. The package's switch (`opt_in_out --opt_out`) is a file in the user's home.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino as ov  # noqa: E402 - see above

# `ov` is for modules that would otherwise import OpenVINO first.
__all__ = ["OpenvinoBackend", "compile_model", "load", "narrowed", "ov", "reason", "refuse_wide"]

_DTYPES = {
    "boolean": "bool",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
}
_QUOTED = "Exception:"
_WIDE = ("i64", "u64", "u32")
_LEAST, _MOST = -(1 << 31), (1 << 31) - 1


class OpenvinoBackend:
    """A compiled model and its inference request.

    The names are those of the `model` as read: compiling may rename an input, as when an Identity follows the input.
    """

    def __init__(self, model: Any, compiled: Any, options: LoadOptions, path: Path) -> None:
        self.inputs = options.shaped(_specs(model.inputs, path))
        self.outputs = _specs(model.outputs, path)
        if not self.inputs:
            raise ModelError(f"{path} has no inputs: there is nothing to send it; convert the model with its inputs.")
        self._narrowed = [self.inputs[at].name for at in narrowed(compiled)]
        self._request = compiled.create_infer_request()

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, which is read in place.

        The returned arrays are the request's own memory and are valid until the next run.

        Raises:
            ModelError: a whole number has more than 32 bits.
            ValueError: the plugin fails on the batch. The message is a single line.
        """
        # Inputs go by position, because a port without a name cannot be looked up by the name that we gave to it.
        inputs = {at: batch[spec.name] for at, spec in enumerate(self.inputs)}
        refuse_wide(batch, self._narrowed)
        try:
            results = self._request.infer(inputs, share_inputs=True, share_outputs=True)
        except RuntimeError as error:  # its text has many lines, with places in OpenVINO's source
            raise ValueError(reason(error)) from error
        return {spec.name: results[at] for at, spec in enumerate(self.outputs)}


def load(detected: Detected, options: LoadOptions) -> OpenvinoBackend:
    """Load an `.xml` with its `.bin`.

    Args:
        detected: place of the two files.
        options: the threads of an inference, and the precision. "bf16" lets the plugin compute in bfloat16 if the CPU has
            bfloat16. Every other precision is float32.

    Raises:
        ModelError: a file is broken, or an input or output is not an array of numbers.
    """
    path = detected.definition
    try:
        model = ov.Core().read_model(path, detected.weights)
        compiled = compile_model(model, options)
    except RuntimeError as error:
        text = str(error)
        if "Unable to read the model" in text:
            cause = (
                "it was cut short, is encrypted (modelEncrypted: true opens it), or is no IR of version 10 or newer."
            )
        elif "Incorrect weights" in text:
            cause = f"{detected.weights} was cut short or is of another model: copy both files again."
        else:
            cause = reason(error)
        raise ModelError(f"{path} cannot be loaded by OpenVINO {ov.get_version()}: {cause}") from error
    return OpenvinoBackend(model, compiled, options, path)


def compile_model(model: Any, options: LoadOptions) -> Any:
    """Compile a model for the CPU, for one inference at a time.

    Raises:
        RuntimeError: the plugin cannot run the model.
    """
    # By default the plugin computes in bfloat16 on CPUs with bfloat16, and probabilities move by 0.01.
    # The worker's affinity is set from outside, so the plugin must not pin its threads.
    settings = {
        "INFERENCE_PRECISION_HINT": "bf16" if options.precision == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": options.threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
        "PERFORMANCE_HINT": "LATENCY",
    }
    return ov.Core().compile_model(model, "CPU", settings)


def narrowed(compiled: Any) -> list[int]:
    """Return the inputs of which the plugin takes the last 32 bits of each number, because it computes whole numbers in 32 bits.

    An input that the model converts to floats first is taken whole.
    """
    if not any(port.element_type.type_name in _WIDE for port in compiled.inputs):
        return []
    model = compiled.get_runtime_model()  # a variable, because the users of a node are lost with the model
    return [
        at
        for at, parameter in enumerate(model.get_parameters())  # in the order of the inputs
        if parameter.get_output_element_type(0).type_name in _WIDE
        and any(
            user.get_node().get_output_element_type(0).type_name == "i32"
            for user in parameter.output(0).get_target_inputs()
        )
    ]


def refuse_wide(batch: Mapping[str, Array], names: Iterable[str], remedy: str = "") -> None:
    """Refuse whole numbers of more than 32 bits in the inputs called `names`, with a `remedy` at the end of the message.

    Raises:
        ModelError: there is such a number.
    """
    for name in names:
        for number in (batch[name].min(initial=0), batch[name].max(initial=0)):
            if not _LEAST <= int(number) <= _MOST:
                raise ModelError(
                    f"input {name!r} has {number}, and OpenVINO computes whole numbers in 32 bits, from {_LEAST} to {_MOST}"
                    f"{remedy}"
                )


def reason(error: Exception) -> str:
    """Return the essential line of an error: the line that OpenVINO quotes, or else the last line.

    The lines in front name places in OpenVINO's source.
    """
    lines = [line.strip().removeprefix("-- ") for line in str(error).splitlines() if line.strip()]
    if _QUOTED in lines[:-1]:
        return lines[lines.index(_QUOTED) + 1]
    return lines[-1] if lines else "no reason given"


def _specs(ports: Iterable[Any], path: Path) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for port in ports:
        try:
            name = str(port.any_name)
        except RuntimeError:  # the port has no name, but its node always does
            name = str(port.node.friendly_name)
        if any(spec.name == name for spec in specs):
            name = f"{name}:{len(specs)}"  # a tensor may be an output twice, under the same name
        element_type: str = port.element_type.type_name
        dtype = _DTYPES.get(element_type)
        if dtype is None:
            raise ModelError(f"{path}: {name!r} holds {element_type} values, and only plain numbers can be served.")
        # The CPU plugin compiles no model with a dynamic number of dimensions.
        shape = [None if dim.is_dynamic else dim.get_length() for dim in port.partial_shape]
        if shape and (batch := port.partial_shape[0]).is_dynamic and batch.get_max_length() > 0:
            shape[0] = batch.get_max_length()  # `1..4`: every batch is padded to 4 rows
        specs.append(TensorSpec(name, dtype, tuple(shape), 0 if shape else None))
    return tuple(specs)
