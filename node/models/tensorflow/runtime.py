"""TensorFlow, imported with its settings in place, and what all models that it runs have in common."""

import contextlib
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec

# TensorFlow looks at these while it is imported. A model is served on the CPU, and looking for CUDA takes time and log lines.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

__all__ = [
    "Function",
    "SavedModel",
    "Tensor",
    "TensorflowBackend",
    "faults_of",
    "inputs_of",
    "spec_of",
    "tf",
    "use_threads",
]

tf: Any = tensorflow  # half of its names are made at run time, where no checker sees them

tf.get_logger().setLevel("ERROR")

_NUMBERS = "biuf"
_REASON_CHARACTERS = 300
_WHERE = re.compile(r'Graph execution error:|Detected at node|File "|<stack traces|\d+ root error|\[\[')
_PREFIX = re.compile(r"^\s*(\(\d+\) )?(\{\{.*?\}\} )?")

Tensor = Any
Function = Callable[..., Sequence[Tensor]]


class TensorflowBackend:
    """A function of tensors.

    Args:
        inputs: one for each argument of `function`, in its order.
        outputs: one for each tensor that it returns.
        function: takes tensors and returns a list of them.
        path: the model file, for errors.
        precision: "bf16" has TensorFlow compute in bfloat16 what it can, where the CPU has it.
        owner: what the variables of `function` belong to, if it does not keep that itself.
    """

    # What TensorFlow rewrites graphs to, when it first runs them: it knows one setting for the whole process.
    _in_bfloat16: ClassVar[bool] = False

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        function: Function,
        path: Path,
        precision: str,
        owner: Any = None,
    ) -> None:
        if not inputs:
            raise ModelError(f"{path} takes no input: there is nothing to serve.")
        for spec in inputs:
            if spec.shape == ():
                raise ModelError(
                    f"{path}: the input {spec.name!r} is a single value for the whole batch, and every record brings its own: "
                    "export the model with a constant in its place."
                )
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._function = function
        self._bfloat16 = precision == "bf16"
        self._owner = owner  # without it, the function still runs, but nothing can be made of it

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, which is copied; text is an array of `str` objects. The results are read-only.

        Raises:
            ValueError: TensorFlow refuses the batch; in one line, without its traces of the graph.
        """
        # Measured: the copy is 0.2 ms of the 150 ms that SqueezeNet takes for 5 MB; sharing the memory through DLPack would let
        # a model that gives out its input point into a slot that is used again.
        tensors = [tf.constant(batch[spec.name]) for spec in self.inputs]
        self._use_precision()
        try:
            results = self._function(*tensors)
        except tf.errors.OpError as error:
            raise ValueError(_reason(error)) from error
        return {spec.name: _array(spec, result) for spec, result in zip(self.outputs, results, strict=True)}

    def _use_precision(self) -> None:
        if self._bfloat16 != TensorflowBackend._in_bfloat16:
            tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": self._bfloat16})
            TensorflowBackend._in_bfloat16 = self._bfloat16

    def convertible(self) -> Any:
        """What OpenVINO can read: the concrete function, of tensors in the order of `inputs`."""

        def function(*tensors: Any) -> Any:
            return self._function(*tensors)

        signature = [tf.TensorSpec(spec.shape, spec.dtype) for spec in self.inputs]
        return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()


def use_threads(threads: int) -> None:
    """Let an operator use so many threads, and run one operator at a time."""
    # They are fixed once a process has run its first operation, as it has when a second model is loaded to compare the two.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)


@contextlib.contextmanager
def faults_of(path: Path, library: str = f"TensorFlow {tf.__version__}") -> Generator[None, None, None]:
    """Turns whatever `library` raises about a file into one sentence."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # errors of TensorFlow, protobuf, HDF5 and Python alike
        raise ModelError(
            f"{path} cannot be loaded by {library} ({_reason(error)}): copy it again, or save the model again."
        ) from error


def _reason(error: Exception) -> str:
    """The first line of what a library says that is not about where it happened."""
    # A KeyError's text is its argument's representation, with line breaks spelled out.
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    lines = [" ".join(_PREFIX.sub("", line).split()) for line in text.splitlines()]
    said = (line for line in lines if line and not _WHERE.match(line))
    return next(said, type(error).__name__)[:_REASON_CHARACTERS]


def spec_of(name: str, tensor: Any, path: Path) -> TensorSpec:
    """The spec of a tensor, or of anything else with a TensorFlow dtype and shape, under a name of its own.

    Raises:
        ModelError: it holds neither numbers nor text.
    """
    dtype = tf.as_dtype(tensor.dtype).base_dtype
    if dtype != tf.string and np.dtype(dtype.as_numpy_dtype).kind not in _NUMBERS:
        raise ModelError(f"{path}: {name!r} holds {dtype.name} values, and only plain numbers and text can be served.")
    shape = tf.TensorShape(tensor.shape)
    dims = None if shape.rank is None else tuple(shape.as_list())
    return TensorSpec(name, "str" if dtype == tf.string else dtype.name, dims)


def inputs_of(tensors: Mapping[str, Any], options: LoadOptions, path: Path) -> list[TensorSpec]:
    """The specs of inputs by name; a shape that the configuration states takes the place of the model's.

    Raises:
        ModelError: the configuration names others, or one holds neither numbers nor text.
    """
    return list(options.shaped([spec_of(name, tensor, path) for name, tensor in tensors.items()]))


def _array(spec: TensorSpec, tensor: Tensor) -> Array:
    array = np.asarray(tensor)
    if not spec.is_text:
        return array
    texts = np.empty(array.shape, object)
    texts.ravel()[:] = [value.decode(errors="replace") for value in array.ravel()]
    return texts
