"""Keras models (`.keras`, `.h5`), run by TensorFlow."""

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py

from cluster_serving.node.models.base import LoadOptions, ModelError, numbered
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.tensorflow.runtime import (
    TensorflowBackend,
    faults_of,
    tf,
    use_threads,
)

os.environ["KERAS_BACKEND"] = "tensorflow"  # Keras reads the variable during its import

import keras
from keras.src.legacy.saving.legacy_h5_format import load_model_from_hdf5

__all__ = ["keras", "load"]


def load(detected: Detected, options: LoadOptions) -> TensorflowBackend:
    """Load a whole Keras model.

    Args:
        detected: place of the file. The content of the file tells the `.keras` kind from the HDF5 kind.
        options: the threads of an operator, the precision (as for models of TensorFlow), the permission to run Python code in
            the file, and the shapes of the inputs.

    Raises:
        ModelError: the file is broken, holds only weights, or needs code that is missing here or not allowed to run.
    """
    use_threads(options.threads)
    path = detected.definition
    with faults_of(path, f"Keras {keras.__version__}"):
        model = _load_model(path, options.allow_pickle)
        return _backend(model, options, path)


def _load_model(path: Path, allow_code: bool) -> Any:
    try:
        if _is_hdf5(path):
            # Python reads the file, because the HDF5 library wants a real path and a file opened in memory has none. Keras has
            # no public function that takes an open file.
            with path.open("rb") as stream, h5py.File(stream) as file:
                return load_model_from_hdf5(file, compile=False, safe_mode=not allow_code)
        # Keras tells the format by the extension, in lower case, and the file may have been renamed.
        with TemporaryDirectory() as directory:
            link = Path(directory, path.stem).with_suffix(".keras")
            link.symlink_to(path.absolute())
            return keras.saving.load_model(link, compile=False, safe_mode=not allow_code)
    except (ValueError, TypeError) as error:
        if "safe_mode=False" in str(error):
            raise ModelError(
                f"{path} holds Python code of its own, as of a Lambda layer, and loading would run it: set allowPickle if you "
                "trust it, or export the model with model.export(directory)."
            ) from error
        if "Could not locate" in str(error):
            raise ModelError(
                f"{path} needs a class of its author's, which is not here: export the model with model.export(directory), "
                f"which keeps its computation. {str(error).partition('. ')[0]}."
            ) from error
        raise


def _is_hdf5(path: Path) -> bool:
    """Return whether the file is an HDF5 file, and not an archive of Keras."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" not in archive.namelist():
                raise ModelError(f"{path} is a zip archive without a Keras model in it: save one with model.save.")
        return False
    try:
        with path.open("rb") as stream, h5py.File(stream) as file:
            if "model_config" not in file.attrs:
                raise ModelError(
                    f"{path} holds weights and no model: load them where the model is made, with model.load_weights, and "
                    "save the whole with model.save('model.keras')."
                )
    except OSError as error:
        raise ModelError(
            f"{path} is truncated, or it is no Keras model (.keras or HDF5): save it again with model.save."
        ) from error
    return True


def _backend(model: Any, options: LoadOptions, path: Path) -> TensorflowBackend:
    if not getattr(model, "inputs", None):
        raise ModelError(
            f"{path} does not know the shapes of its inputs: export the model with model.export(directory)."
        )
    # A Sequential model states no structure: it takes a single tensor and returns a single tensor.
    structured = hasattr(model, "output_names")
    takes = model.input if structured else model.inputs[0]
    output_names = model.output_names if structured else [model.layers[-1].name]
    inputs = dict(zip(_names(takes, [tensor.name for tensor in model.inputs], "input"), model.inputs, strict=True))
    names = _names(model.output if structured else model.outputs[0], output_names, "output")

    def infer(*tensors: Any) -> list[Any]:
        outputs = model(keras.tree.pack_sequence_as(takes, tensors), training=False)
        return list(keras.tree.flatten(outputs))

    signature = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in model.inputs]
    function = tf.function(infer, input_signature=signature, autograph=False).get_concrete_function()
    return TensorflowBackend(
        inputs, dict(zip(names, function.structured_outputs, strict=True)), function, path, options, owner=model
    )


def _names(structure: Any, names: Sequence[str], word: str) -> Sequence[str]:
    """Return a dict's keys, or else the given `names`. If two names are the same, return numbered names."""
    if isinstance(structure, dict):
        paths = [place for place, _ in keras.tree.flatten_with_path(structure)]
        names = [".".join(map(str, place)) for place in paths]
    count = len(keras.tree.flatten(structure))
    return names if len(set(names)) == count else numbered(word, count)
