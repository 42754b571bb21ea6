"""TensorFlow, imported with its settings in place, and the backend that all models on TensorFlow share."""

import contextlib
import os
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cluster_serving.client.servers.process.quick_imports import import_lean
from cluster_serving.client.wire.bytes_in_text import BYTES_NAME, text_of
from cluster_serving.node.models.base import Array, LoadOptions, ModelError, TensorSpec

# TensorFlow reads the variables during its import. A model is served on the CPU, and looking for CUDA takes time and log lines.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import_lean("tensorflow")

import tensorflow  # noqa: E402 - the second import of it
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel  # noqa: E402

__all__ = [
    "Function",
    "SavedModel",
    "Tensor",
    "TensorflowBackend",
    "faults_of",
    "tf",
    "use_threads",
]

tf: Any = tensorflow  # half of the names are made at run time, unseen by type checkers

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
        inputs: dtype and shape of each argument of `function` by name, in the order of the arguments.
        outputs: the same of each tensor that `function` returns.
        function: takes tensors and returns a list of them.
        path: the model file, for errors.
        options: the shapes of the inputs. Precision "bf16" lets TensorFlow compute in bfloat16 as far as it can, if the CPU has
            bfloat16.
        owner: the object with the variables of `function`, if `function` does not keep the object alive.

    Raises:
        ModelError: there is no input, the options name inputs that the model lacks, or a tensor holds neither numbers nor text.
    """

    # True if TensorFlow rewrites graphs to bfloat16 at their first run. TensorFlow has one setting for the whole process.
    _in_bfloat16: ClassVar[bool] = False

    def __init__(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        function: Function,
        path: Path,
        options: LoadOptions,
        owner: Any = None,
    ) -> None:
        self.inputs = options.shaped(
            [_spec_of(name, tensor, path, takes_bytes=True) for name, tensor in inputs.items()]
        )
        self.outputs = tuple(_spec_of(name, tensor, path) for name, tensor in outputs.items())
        if not inputs:
            raise ModelError(f"{path} takes no input: there is nothing to serve.")
        self._takes_bfloat16 = [tf.as_dtype(tensor.dtype).base_dtype == tf.bfloat16 for tensor in inputs.values()]
        self._function = function
        self._bfloat16 = options.precision == "bf16"
        self._owner = owner  # without the owner, the function still runs, but no new function can be made of it

    def run(self, batch: dict[str, Array]) -> dict[str, Array]:
        """Run the model once on `batch`, which is copied. The results are read-only.

        Text is an array of `str` objects, which may stand for bytes that are not UTF-8.

        Raises:
            ValueError: TensorFlow refuses the batch. The message is a single line, without TensorFlow's traces of the graph.
            ModelError: an output holds bytes that are not UTF-8 text, and its name does not end in `_bytes`.
        """
        # Measured: the copy is 0.2 ms of the 150 ms that SqueezeNet takes for 5 MB. With memory shared through DLPack, the
        # result of a model that gives out its input would point into a slot that is used again.
        tensors = [
            tf.constant(_encoded(batch[spec.name]) if spec.is_text else batch[spec.name]) for spec in self.inputs
        ]
        if self._bfloat16 != TensorflowBackend._in_bfloat16:
            tf.config.optimizer.set_experimental_options({"auto_mixed_precision_onednn_bfloat16": self._bfloat16})
            TensorflowBackend._in_bfloat16 = self._bfloat16
        try:
            results = self._call(*tensors)
        except tf.errors.OpError as error:
            raise ValueError(_reason(error)) from error
        arrays: dict[str, Array] = {}
        for spec, result in zip(self.outputs, results, strict=True):
            array = np.asarray(result)
            arrays[spec.name] = _decoded(spec.name, array) if spec.is_text else array
        return arrays

    def convertible(self) -> Any:
        """Return the concrete function for OpenVINO to read, with tensors in the order of `inputs`."""

        def function(*tensors: Any) -> Any:
            return self._call(*tensors)

        signature = [tf.TensorSpec(spec.shape, spec.dtype) for spec in self.inputs]
        return tf.function(function, input_signature=signature, autograph=False).get_concrete_function()

    def _call(self, *tensors: Tensor) -> list[Tensor]:
        """Call the function. bfloat16, unknown to numpy, is float32 outside of the function."""
        taken = [
            tf.cast(tensor, tf.bfloat16) if narrow else tensor
            for tensor, narrow in zip(tensors, self._takes_bfloat16, strict=True)
        ]
        return [tf.cast(each, tf.float32) if each.dtype == tf.bfloat16 else each for each in self._function(*taken)]


def _encoded(array: Array) -> Array:
    """Return the bytes that the texts of an input stand for."""
    contents = np.empty(array.shape, object)
    contents.ravel()[:] = [text.encode(errors="surrogateescape") for text in array.ravel()]
    return contents


def _decoded(name: str, array: Array) -> Array:
    """Return the text of an output, or the text that stands for its bytes."""
    decode = text_of if name.endswith(BYTES_NAME) else bytes.decode
    texts = np.empty(array.shape, object)
    try:
        texts.ravel()[:] = [decode(value) for value in array.ravel()]
    except UnicodeDecodeError as error:
        raise ModelError(
            f"output {name!r} holds bytes that are not UTF-8 text: export the model with a name that ends in {BYTES_NAME}, or "
            "name its other outputs in modelOutputs"
        ) from error
    return texts


def use_threads(threads: int) -> None:
    """Let an operator use `threads` threads, and let TensorFlow run a single operator at a time."""
    # Both numbers are fixed after the first operation of a process, as when a second model is loaded to compare the two.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)


@contextlib.contextmanager
def faults_of(path: Path, library: str = f"TensorFlow {tf.__version__}") -> Generator[None, None, None]:
    """Turn any exception of `library` about a file into a `ModelError` of one sentence."""
    try:
        yield
    except ModelError:
        raise
    except Exception as error:  # errors of TensorFlow, protobuf, HDF5 and Python alike
        raise ModelError(
            f"{path} cannot be loaded by {library} ({_reason(error)}): copy it again, or save the model again."
        ) from error


def _reason(error: Exception) -> str:
    """Return the first line of a library's error that is not about a place in the code."""
    # The text of a KeyError is the representation of its argument, with line breaks spelled out.
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    lines = [" ".join(_PREFIX.sub("", line).split()) for line in text.splitlines()]
    said = (line for line in lines if line and not _WHERE.match(line))
    return next(said, type(error).__name__)[:_REASON_CHARACTERS]


def _spec_of(name: str, tensor: Any, path: Path, *, takes_bytes: bool = False) -> TensorSpec:
    """Return the spec of a tensor, or of any object with a TensorFlow dtype and shape, under the given name. bfloat16 is float32.

    Raises:
        ModelError: the tensor holds neither numbers nor text.
    """
    dtype = tf.as_dtype(tensor.dtype).base_dtype
    if dtype == tf.bfloat16:
        dtype = tf.float32
    if dtype != tf.string and np.dtype(dtype.as_numpy_dtype).kind not in _NUMBERS:
        raise ModelError(f"{path}: {name!r} holds {dtype.name} values, and only plain numbers and text can be served.")
    shape = tf.TensorShape(tensor.shape)
    dims = None if shape.rank is None else tuple(shape.as_list())
    is_text = dtype == tf.string
    return TensorSpec(name, "str" if is_text else dtype.name, dims, None if dims == () else 0, takes_bytes and is_text)
