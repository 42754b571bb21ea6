"""PyTorch models: TorchScript, exported programs and, where the configuration allows them, pickled modules."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from cluster_serving.node.models.base import Array, LoadOptions, TensorSpec, open_inputs
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.torch.called import module_program, script_program
from cluster_serving.node.models.torch.exported import exported_program
from cluster_serving.node.models.torch.files import Model, read
from cluster_serving.node.models.torch.program import Program
from cluster_serving.node.models.torch.values import by_name, to_array, to_tensor


class TorchBackend:
    """A model that runs on the CPU.

    Only exported programs state their outputs. For all other models the outputs are known after the first run, because a type in
    TorchScript does not tell the dtype.
    """

    def __init__(self, model: Model, program: Program, bfloat16: bool) -> None:
        self.inputs = program.inputs
        self.outputs = program.outputs
        self._model = model
        self._program = program
        self._arithmetic = partial(torch.autocast, "cpu", torch.bfloat16) if bfloat16 else nullcontext
        # Convolutions are faster with the channels last: SqueezeNet gives 42 images/s instead of 28.
        self._channels_last = program.has_images

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on a copy of `batch`.

        The returned arrays may be memory of the model, so the arrays are valid until the next run.

        Raises:
            ModelError: an output is no tensor, or is sparse or quantized.
            RuntimeError: the model fails.
        """
        casts = self._program.casts or (None,) * len(batch)
        arrays = [batch[spec.name] for spec in self.inputs or open_inputs(len(batch))]
        with torch.inference_mode(), self._arithmetic():
            result = self._call(list(zip(arrays, casts, strict=True)))
            outputs = {name: to_array(name, tensor) for name, tensor in by_name(result).items()}
        if not self.outputs:
            # If inputs have free dimensions, the shapes of the outputs stay open.
            rows = [spec.row_shape for spec in self.inputs]
            fixed = bool(rows) and all(row is not None and None not in row for row in rows)
            axis = 0 if not self.inputs or any(spec.batch_axis is not None for spec in self.inputs) else None
            self.outputs = tuple(
                TensorSpec(name, array.dtype.name, (None, *array.shape[1:]) if fixed and array.ndim else None, axis)
                for name, array in outputs.items()
            )
        return outputs

    def convertible(self) -> Model:
        """Return the model for OpenVINO to read."""
        return self._model

    def _call(self, inputs: Sequence[tuple[Array, torch.dtype | None]]) -> Any:
        """Call the model with arrays, each cast to a dtype."""
        try:
            if not self._channels_last:
                return self._program.call([to_tensor(*each, channels_last=False) for each in inputs])
            try:
                return self._program.call([to_tensor(*each, channels_last=True) for each in inputs])
            except (RuntimeError, torch.jit.Error):
                # A view() after a convolution needs the channels first. A model with such a view() fails every time.
                result = self._program.call([to_tensor(*each, channels_last=False) for each in inputs])
                self._channels_last = False
                return result
        except (RuntimeError, torch.jit.Error) as error:
            text = str(error).strip()
            # TorchScript puts the listing of the model's code in front of the error.
            reason = text.splitlines()[-1].removeprefix("RuntimeError: ") if "TorchScript" in text else text
            raise RuntimeError(reason) from error


def load(detected: Detected, options: LoadOptions) -> TorchBackend:
    """Load a file that torch.jit.save, torch.export.save or torch.save has written.

    Args:
        detected: place of the file.
        options: the threads of an operator. Precision "bf16" runs under autocast. `inputs` gives shapes and dtypes that the
            file does not tell, and names optional arguments to serve. `allow_pickle` permits modules saved by torch.save.

    Raises:
        ModelError: the file is broken or no model, needs a permission, or takes arguments other than tensors.
    """
    torch.set_num_threads(options.threads)
    with suppress(RuntimeError):  # the number can be set only once in a process
        torch.set_num_interop_threads(1)
    path = detected.definition
    model = read(path, options.allow_pickle)
    if isinstance(model, ExportedProgram):
        program = exported_program(model, options, path)
    elif isinstance(model, torch.jit.ScriptModule):
        program = script_program(model, options, path)
    else:
        program = module_program(model, options, path)
    return TorchBackend(model, program, options.precision == "bf16")
