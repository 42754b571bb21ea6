"""TensorFlow models: SavedModels of TensorFlow 1 and 2, frozen graphs and checkpoints."""

import contextlib
import glob
from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from cluster_serving.node.models.base import LoadOptions, ModelError, TensorSpec
from cluster_serving.node.models.detect import SAVED_MODEL, Detected
from cluster_serving.node.models.tensorflow.graph import Graph, load_checkpoint, load_frozen
from cluster_serving.node.models.tensorflow.paths import without_patterns
from cluster_serving.node.models.tensorflow.runtime import (
    SavedModel,
    TensorflowBackend,
    faults_of,
    tf,
    use_threads,
)
from cluster_serving.node.models.tensorflow.signature import Signature, choose_signature, is_version_2, listed

_SERVE = "serve"


def load(detected: Detected, options: LoadOptions) -> TensorflowBackend:
    """Load a TensorFlow model.

    Args:
        detected: place of the model, and one of the three formats.
        options: the threads of an operator, the signature, and the inputs and outputs to take, as names of tensors (`x:0`) or as
            keys of the signature. Precision "bf16" computes the graph's float32 operations in bfloat16, if oneDNN can.

    Raises:
        ModelError: a file is broken or missing, or the model lacks the signature, an input or an output.
    """
    use_threads(options.threads)
    path = detected.definition
    with faults_of(path):
        if detected.format == "tensorflowSavedModel":
            with _faults_of_weights(path / "variables" / "variables"):
                return _load_saved_model(path, options)
        if detected.format == "tensorflowFrozenModel":
            return load_frozen(path, options)
        with _faults_of_weights(path.with_suffix("")):
            return load_checkpoint(path, options)


@contextlib.contextmanager
def _faults_of_weights(prefix: Path) -> Generator[None, None, None]:
    """Report broken weights by the name of the file, because TensorFlow does not tell the file that it was reading."""
    try:
        yield
    except ModelError:
        raise
    except Exception:  # any failure may come from the weights
        _check_weights(prefix)
        raise


def _check_weights(prefix: Path) -> None:
    """Read all the weights.

    Raises:
        ModelError: the weights cannot be read. The message names the file.
    """
    if not prefix.parent.is_dir():
        return
    file = f"{prefix}.index"
    try:
        with without_patterns(prefix) as plain:
            reader = tf.train.load_checkpoint(str(plain))
            file = (
                ", ".join(sorted(map(str, prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*"))))
                or f"{prefix}.data-*"
            )
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
    except Exception as error:
        raise ModelError(f"{file} is missing, truncated or damaged: copy it again, or save the model again.") from error


def _load_saved_model(directory: Path, options: LoadOptions) -> TensorflowBackend:
    meta_graph = _meta_graph(directory)
    signature = choose_signature(meta_graph, options, directory)
    with _with_variables(directory, meta_graph) as complete:
        root = tf.saved_model.load(str(complete), tags=list(meta_graph.meta_info_def.tags))
    if not is_version_2(meta_graph):
        return Graph(root.graph, root.prune, directory).backend(options, signature.inputs, signature.outputs)
    if not signature.name:
        raise ModelError(
            f"{directory} has no signature to serve: export it with tf.saved_model.save(model, path, signatures=...)."
        )
    tensors = meta_graph.signature_def[signature.name].inputs
    takes = {key: tf.TensorSpec(tensors[key].tensor_shape, tensors[key].dtype) for key in signature.inputs}
    return _signature_backend(root, signature, takes, options, directory)


@contextlib.contextmanager
def _with_variables(directory: Path, meta_graph: Any) -> Generator[Path, None, None]:
    """Yield the SavedModel with a directory `variables`, which TensorFlow 2 wants even for a model without variables."""
    if (directory / "variables").is_dir() or not is_version_2(meta_graph):
        with without_patterns(directory) as plain:
            yield plain
        return
    if any(node.HasField("variable") for node in meta_graph.object_graph_def.nodes):
        raise ModelError(f"{directory} is a part of a SavedModel: put its directory variables beside saved_model.pb.")
    with TemporaryDirectory() as temporary:
        for file in directory.iterdir():
            Path(temporary, file.name).symlink_to(file.absolute())
        tf.train.Checkpoint().write(f"{temporary}/variables/variables")
        yield Path(temporary)


def _signature_backend(
    root: Any, signature: Signature, takes: Mapping[str, Any], options: LoadOptions, path: Path
) -> TensorflowBackend:
    """Build the backend for a model of TensorFlow 2. Its signature is a function that is called by keyword.

    `takes` has dtype and shape by key. The function itself has only names that Python takes: `input_1` for the key `input-1`.
    """
    name = signature.name
    gives = root.signatures[name].structured_outputs
    inputs = _keys(signature.inputs, options.inputs, "input", path)
    outputs = _keys(signature.outputs, options.output_names, "output", path)
    if left_out := sorted(takes.keys() - inputs):
        raise ModelError(f"{path}: the signature {name!r} needs the input {left_out[0]!r} as well.")

    def call(*tensors: Any) -> list[Any]:
        # Called through the root, because the variables live only as long as the root.
        results = root.signatures[name](**dict(zip(inputs, tensors, strict=True)))
        return [results[key] for key in outputs]

    return TensorflowBackend(
        {key: takes[key] for key in inputs}, {key: gives[key] for key in outputs}, call, path, options
    )


def _keys(tensors: Mapping[str, str], wanted: tuple[str, ...], word: str, path: Path) -> list[str]:
    """Return the keys of the signature to use, each once: the wanted keys or tensor names, or else all keys, sorted."""
    by_tensor = {tensor: key for key, tensor in tensors.items()}
    names = [TensorSpec.parse(text).name for text in wanted]
    for name in names:
        if name not in tensors and name not in by_tensor:
            raise ModelError(f"{path} has no {word} {name!r}, only {listed([*tensors, *by_tensor])}.")
    return list(dict.fromkeys(name if name in tensors else by_tensor[name] for name in names)) or list(tensors)


def _meta_graph(directory: Path) -> Any:
    """Return the graph of a SavedModel to serve."""
    file = next(directory / name for name in SAVED_MODEL if (directory / name).is_file())
    model = SavedModel()
    try:
        if file.suffix == ".pb":
            model.ParseFromString(file.read_bytes())
        else:
            text_format.Parse(file.read_text(encoding="utf-8"), model)
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} is truncated, or it is no SavedModel: export the model again.") from error
    if not any(graph.graph_def.node for graph in model.meta_graphs):
        raise ModelError(
            f"{file} is no SavedModel; if it is a frozen graph, call it frozen_inference_graph.pb, else export the model again."
        )
    tags = ["+".join(graph.meta_info_def.tags) for graph in model.meta_graphs]
    for_serving = [graph for graph in model.meta_graphs if _SERVE in graph.meta_info_def.tags] or list(
        model.meta_graphs
    )
    exactly = [graph for graph in for_serving if list(graph.meta_info_def.tags) == [_SERVE]] or for_serving
    if len(exactly) > 1:
        raise ModelError(f"{file} holds several graphs, tagged {listed(tags)}: export one, with the tag {_SERVE}.")
    return exactly[0]
