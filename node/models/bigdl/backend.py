"""BigDL models, rebuilt of their `.model` file and run by torch on the CPU."""

import numpy as np
import torch

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, numbered
from cluster_serving.node.models.bigdl.layers.table import flattened
from cluster_serving.node.models.bigdl.registry import Layer, build, refusals
from cluster_serving.node.models.bigdl.signature import inputs_of, outputs_of, takes_table
from cluster_serving.node.models.bigdl.tree import Module, read_model
from cluster_serving.node.models.detect import Detected


class BigdlBackend:
    """A model of BigDL as a function of torch tensors, whose numbers are all float32."""

    def __init__(self, model: Layer, root: Module, options: LoadOptions) -> None:
        self.inputs = inputs_of(root, options)
        self.outputs = outputs_of(root)
        self._model = model
        self._takes_table = takes_table(root)
        self._bfloat16 = options.precision == "bf16"

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`: by name, or all in their order if the model takes a table of any length.

        The results are new, float32.
        """
        arrays = [batch[spec.name] for spec in self.inputs] or list(batch.values())
        tensors = [_tensor(each) for each in arrays]
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            outputs = flattened(self._model(tensors if self._takes_table else tensors[0]))
            results = [_array(each, arrays) for each in outputs]
        return dict(zip(numbered("output", len(results)), results, strict=True))


def load(detected: Detected, options: LoadOptions) -> BigdlBackend:
    """Load a `.model`, with its weights beside it if they are not in it.

    Args:
        detected: where the files are.
        options: the threads of one operation; the precision "bf16" computes convolutions and matrix products in bfloat16; what
            the configuration says of the inputs is taken over.

    Raises:
        ModelError: a file is broken, or a layer is not served; all such layers are named.
    """
    torch.set_num_threads(options.threads)
    root = read_model(detected.definition, detected.weights)
    with torch.inference_mode():
        model = build(root)
    reasons = refusals(root)
    if reasons:
        raise ModelError(f"{detected.definition} cannot be served: {reasons}.")
    return BigdlBackend(model, root, options)


def _tensor(array: Array) -> torch.Tensor:
    # torch warns of arrays that cannot be written to; no layer writes to its input.
    writable = array if array.flags.writeable else array.copy()
    return torch.from_numpy(writable).float()


def _array(tensor: torch.Tensor, inputs: list[Array]) -> Array:
    array: Array = tensor.float().contiguous().numpy()
    # A layer may pass its input on, and that memory is the caller's.
    return array.copy() if any(np.may_share_memory(array, each) for each in inputs) else array
