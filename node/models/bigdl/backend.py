"""BigDL models, rebuilt from a `.model` file and run by torch on the CPU."""

import numpy as np
import torch

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, numbered
from cluster_serving.node.models.bigdl.layers.table import flattened
from cluster_serving.node.models.bigdl.registry import Layer, build, refusals
from cluster_serving.node.models.bigdl.signature import inputs_of, outputs_of, takes_table
from cluster_serving.node.models.bigdl.tree import Module, read_model
from cluster_serving.node.models.detect import Detected


class BigdlBackend:
    """A model of BigDL as a function of torch tensors. All numbers are float32."""

    def __init__(self, model: Layer, root: Module, options: LoadOptions) -> None:
        self.inputs = inputs_of(root, options)
        self.outputs = outputs_of(root)
        self._model = model
        self._takes_table = takes_table(root)
        self._bfloat16 = options.precision == "bf16"

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`: arrays by name, or all arrays in order if the model takes a table of any length.

        The results are new arrays of float32.
        """
        arrays = [batch[spec.name] for spec in self.inputs] or list(batch.values())
        # The copy avoids torch's warning about read-only arrays. No layer writes to its input.
        tensors = [torch.from_numpy(each if each.flags.writeable else each.copy()).float() for each in arrays]
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            outputs = flattened(self._model(tensors if self._takes_table else tensors[0]))
            results: list[Array] = [each.float().contiguous().numpy() for each in outputs]
            # A layer may pass its input on, and the memory of the input is the caller's.
            results = [
                each.copy() if any(np.may_share_memory(each, array) for array in arrays) else each for each in results
            ]
        return dict(zip(numbered("output", len(results)), results, strict=True))


def load(detected: Detected, options: LoadOptions) -> BigdlBackend:
    """Load a `.model`, with the file of weights beside it if the `.model` holds no weights.

    Args:
        detected: place of the files.
        options: the threads of an operation. Precision "bf16" computes convolutions and matrix products in bfloat16. Specs of
            the inputs are taken over from the configuration.

    Raises:
        ModelError: a file is broken, or layers are not served. The message names all layers that are not served.
    """
    torch.set_num_threads(options.threads)
    root = read_model(detected.definition, detected.weights)
    with torch.inference_mode():
        model = build(root)
    reasons = refusals(root)
    if reasons:
        raise ModelError(f"{detected.definition} cannot be served: {reasons}.")
    return BigdlBackend(model, root, options)
