"""Detection of the model at a path, and loading with the backend that serves it."""

import importlib
import importlib.util
import os
import re
from collections.abc import Collection
from pathlib import Path
from shlex import quote
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec

from cluster_serving.client.extras import install_command
from cluster_serving.node.models.allocator import GAINS, keep_freed_memory
from cluster_serving.node.models.base import Backend, LoadOptions, ModelError

# Messages begin with the words of the original product, because scripts look for them.
_ONLY_ONE = (
    "Only one model is allowed to exist in model folder, "
    "please check your model folder to keep just one model in the directory"
)
_NONE = "There is no model detected in your directory. Please refer to document for supported model types."
_NO_PATH = "Your model path provided in config is empty, please check your model path."
_INVALID = "Invalid model type, please check your model directory"


class SeveralModels(ModelError):
    """The directory has files of several models, and nothing says which to serve."""


class _Package(msgspec.Struct, frozen=True):
    """Package that a backend imports, and the extra that installs the package."""

    package: str
    extra: str


class _Format(msgspec.Struct, frozen=True):
    """Kind of model on disk, told by the extension of its `definition`.

    `weights` is the extension of the weights file. `pairing` says which weights file belongs to a definition: the file of the
    `same` stem, the `only` file of the extension, or an `optional` file.
    """

    title: str
    backend: str
    definition: tuple[str, ...]
    weights: str = ""
    pairing: Literal["same", "only", "optional"] = "same"


_PACKAGES = {
    "onnx": _Package("onnxruntime", "onnx"),
    "openvino": _Package("openvino", "openvino"),
    "tensorflow": _Package("tensorflow", "tensorflow"),
    "keras": _Package("keras", "tensorflow"),
    "torch": _Package("torch", "torch"),
    "caffe": _Package("cv2", "caffe"),
    "bigdl": _Package("torch", "bigdl"),
    "python": _Package("numpy", "node"),
}

FORMATS = {
    "onnx": _Format("ONNX (.onnx)", "onnx", (".onnx",)),
    "openvino": _Format("OpenVINO IR (.xml + .bin)", "openvino", (".xml",), ".bin"),
    "tensorflowSavedModel": _Format("TensorFlow SavedModel (saved_model.pb)", "tensorflow", ()),
    "tensorflowFrozenModel": _Format("TensorFlow frozen graph (.pb)", "tensorflow", (".pb",)),
    "tensorflowCheckpoint": _Format("TensorFlow checkpoint (.meta + .index)", "tensorflow", (".meta",), ".index"),
    "keras": _Format("Keras (.keras, .h5)", "keras", (".keras", ".h5", ".hdf5")),
    "pytorch": _Format("PyTorch (.pt, .pt2, .pth)", "torch", (".pt", ".pt2", ".pth", ".ckpt", ".jit", ".torchscript")),
    "caffe": _Format("Caffe (.prototxt + .caffemodel)", "caffe", (".prototxt",), ".caffemodel", "only"),
    "bigdl": _Format("BigDL (.model)", "bigdl", (".model",), ".bin", "optional"),
    "python": _Format("Python (.py)", "python", (".py",)),
}
_SERVED = ", ".join(each.title for each in FORMATS.values())
_BY_DEFINITION = {suffix: name for name, each in FORMATS.items() for suffix in each.definition}
# Extensions of files that are only half of a model, and the most likely format of each extension.
_BY_WEIGHTS = {".caffemodel": "caffe", ".index": "tensorflowCheckpoint", ".bin": "openvino"}

SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_BESIDE_SAVED_MODEL = ("fingerprint.pb", "keras_metadata.pb")
_FROZEN_FIRST = ("frozen_inference_graph.pb", "frozen_graph.pb")

# Names of the formats in the configuration, in lower case. A name for several formats leaves the choice to the files.
_TENSORFLOW = ("tensorflowSavedModel", "tensorflowFrozenModel", "tensorflowCheckpoint")
MODEL_TYPES: dict[str, tuple[str, ...]] = {
    **{name.lower(): (name,) for name in FORMATS},
    "tensorflow": _TENSORFLOW,
    "tf": _TENSORFLOW,
    "tf.frozenmodel": ("tensorflowFrozenModel",),
    "torch": ("pytorch",),
}


class Detected(msgspec.Struct, frozen=True):
    """A model on disk: its `format` (a key of `FORMATS`) and its files.

    A worker receives the object as JSON, so the fields hold the paths as text. The definition of a SavedModel is its directory.
    """

    format: str
    definition_path: str
    weights_path: str | None = None

    @property
    def backend(self) -> str:
        """Module of `node/models` that serves the model."""
        return FORMATS[self.format].backend

    @property
    def definition(self) -> Path:
        """Model file, or the file that describes the model."""
        return Path(self.definition_path)

    @property
    def weights(self) -> Path | None:
        """File of the weights, if the weights have a separate file."""
        return None if self.weights_path is None else Path(self.weights_path)


def detect(model_path: str, model_type: str | None = None, ignore: Collection[Path] = ()) -> Detected:
    """Find the one model at a path.

    Args:
        model_path: a directory, looked at without its subdirectories, or a model file. Plain path or `file://` URL.
        model_type: the only kind to look for (a key of `MODEL_TYPES`, in any case). `None` stands for any kind.
        ignore: files that may lie in the directory and are no models.

    Raises:
        ModelError: there is no model, more than one model or half of a model, or a file cannot be read.
    """
    path = _local_path(model_path)
    wanted = tuple(FORMATS) if model_type is None else MODEL_TYPES.get(model_type.strip().lower())
    if wanted is None:
        raise ModelError(f"{_INVALID}: the model type {model_type!r} is none of {', '.join(MODEL_TYPES)}.")
    try:
        # Unlike Path.resolve, os.path.realpath takes a link to itself, which is no reason to refuse the files beside it.
        skipped = set(map(os.path.realpath, ignore))
        detected = _choose(path, [file for file in _candidates(path) if os.path.realpath(file) not in skipped], wanted)
        for file in (detected.definition, detected.weights):
            if file is not None and not file.is_dir():
                file.open("rb").close()
    except OSError as error:
        raise ModelError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    return detected


def missing_package(backend: str) -> tuple[str, str] | None:
    """Return the package of a backend and the command that installs the package. None: the package is installed."""
    needs = _PACKAGES[backend]
    if importlib.util.find_spec(needs.package) is not None:
        return None
    return needs.package, install_command(needs.extra)


def load(detected: Detected, options: LoadOptions) -> Backend:
    """Import the model's backend and load the model with it.

    Raises:
        ModelError: the backend's package is missing or broken, or the backend cannot load the model.
    """
    needs = _PACKAGES[detected.backend]
    if detected.backend in GAINS:
        keep_freed_memory()
    try:
        module = importlib.import_module(f"cluster_serving.node.models.{detected.backend}")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "").startswith("cluster_serving"):
            raise ModelError(
                f"{detected.definition} needs the package {error.name}, which is not installed: "
                f"{install_command(needs.extra)}"
            ) from error
        raise ModelError(
            f"{detected.definition} needs the package {needs.package}, which cannot be imported here: {error}"
        ) from error
    backend: Backend = module.load(detected, options)
    return backend


def _local_path(model_path: str) -> Path:
    if not model_path.strip():
        raise ModelError(f"{_NO_PATH} Set modelPath to a directory with one model, or to a model file.")
    url = urlsplit(model_path)
    if not url.scheme or "://" not in model_path:
        return Path(model_path)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise ModelError(f"{model_path} is not on this machine: copy the model here and give its path.")
    return Path(unquote(url.path))


def _candidates(path: Path) -> list[Path]:
    """Return the files to choose from: all files of a directory, or the named file with the second half of its model."""
    if path.is_dir():
        # Editors, macOS and Jupyter leave behind files with a leading dot.
        return sorted(file for file in path.iterdir() if not file.name.startswith(".") and not file.is_dir())
    if not path.is_file():
        raise ModelError(f"Please check your model path: {path} does not exist.")
    if path.suffix.lower() not in _BY_DEFINITION.keys() | _BY_WEIGHTS.keys() and path.name not in SAVED_MODEL:
        if _is_weights_alone(path):
            raise _weights_alone(path)
        raise ModelError(f"{_INVALID}: {path} is not a model file; this version serves {_SERVED}.")
    if path.suffix.lower() in _BY_WEIGHTS:
        halves = {*_BY_WEIGHTS, *(suffix for suffix, name in _BY_DEFINITION.items() if FORMATS[name].weights)}
        return sorted(
            file for file in path.parent.iterdir() if file.stem == path.stem and file.suffix.lower() in halves
        )
    weights = FORMATS[_BY_DEFINITION[path.suffix.lower()]].weights if path.suffix.lower() in _BY_DEFINITION else ""
    return [path, *sorted(file for file in path.parent.iterdir() if weights and file.suffix.lower() == weights)]


def _format_of(file: Path) -> str | None:
    """Return the format of the model that a file defines."""
    if file.name in SAVED_MODEL:
        return "tensorflowSavedModel"
    if file.name in _BESIDE_SAVED_MODEL:
        return None
    return _BY_DEFINITION.get(file.suffix.lower())


def _choose(path: Path, files: list[Path], wanted: tuple[str, ...]) -> Detected:
    known = [(file, name) for file in files if (name := _format_of(file)) is not None]
    found = _without_companions([(file, name) for file, name in known if name in wanted])
    if len(found) > 1:
        names = ", ".join(file.name for file, _ in found)
        kinds = sorted({name for _, name in found})
        choose = f"set modelType to {' or '.join(kinds)}, " if len(kinds) > 1 else ""
        raise SeveralModels(
            f"{_ONLY_ONE}: {path} holds {names}; take away all but one, {choose}or give the path of the model file itself."
        )
    if not found:
        raise _nothing_found(path, files, wanted)
    definition, name = found[0]
    if name == "tensorflowSavedModel":
        return Detected(name, str(definition.parent))
    weights = _weights_of(definition, FORMATS[name], files)
    return Detected(name, str(definition), None if weights is None else str(weights))


def _without_companions(found: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Drop the frozen graphs beside a graph with a name that the original product knew, and drop earlier checkpoints."""
    names = {file.name for file, _ in found}
    first = next((name for name in _FROZEN_FIRST if name in names), None)
    latest = None
    checkpoints = [file.name for file, name in found if name == "tensorflowCheckpoint"]
    if len(checkpoints) > 1:
        # The file `checkpoint` beside the checkpoints names the checkpoint that TensorFlow wrote last.
        listing = found[0][0].with_name("checkpoint")
        text = listing.read_text(errors="replace") if listing.is_file() else ""
        match = re.search(r'^model_checkpoint_path:\s*"(?:.*/)?([^"/]+)"', text, re.MULTILINE)
        latest = f"{match[1]}.meta" if match and f"{match[1]}.meta" in checkpoints else None
    wanted = {"tensorflowFrozenModel": first, "tensorflowCheckpoint": latest}
    return [(file, name) for file, name in found if wanted.get(name) in (None, file.name)]


def _weights_of(definition: Path, kind: _Format, files: list[Path]) -> Path | None:
    if not kind.weights:
        return None
    weights = [file for file in files if file.suffix.lower() == kind.weights]
    same = [file for file in weights if file.stem == definition.stem]
    if kind.pairing != "same" and len(weights) == 1:
        return weights[0]
    if same:
        return same[0]
    if kind.pairing == "optional" and not weights:
        return None
    if kind.pairing != "same" and weights:
        names = ", ".join(file.name for file in weights)
        raise SeveralModels(f"{_ONLY_ONE}: {definition} could go with any of {names}; keep one.")
    raise ModelError(
        f"{definition} is half of a model ({kind.title}): put its weights {definition.stem}{kind.weights} beside it."
    )


def _is_weights_alone(file: Path) -> bool:
    return file.suffix.lower() == ".safetensors" or (file.suffix == ".bin" and file.name.startswith("pytorch_model"))


def _weights_alone(file: Path) -> ModelError:
    return ModelError(
        f"{_NONE} {file} has weights alone, as Hugging Face keeps them, and no model to run: export it, for instance with "
        f"optimum-cli export onnx --model {quote(str(file.parent))} onnx-model"
    )


def _nothing_found(path: Path, files: list[Path], wanted: tuple[str, ...]) -> ModelError:
    if "tensorflowSavedModel" in wanted and (
        (path / "variables").is_dir() or any(file.name in _BESIDE_SAVED_MODEL for file in files)
    ):
        return ModelError(f"{_NONE} {path} is half of a SavedModel: put its {SAVED_MODEL[0]} there.")
    if (weights := next(filter(_is_weights_alone, files), None)) is not None:
        return _weights_alone(weights)
    for file in files:
        name = _BY_WEIGHTS.get(file.suffix.lower(), "")
        if name in wanted:
            suffix = FORMATS[name].definition[0]
            return ModelError(
                f"{_NONE} {file} is half of a model ({FORMATS[name].title}): put its definition {file.stem}{suffix} beside it."
            )
    titles = ", ".join(FORMATS[name].title for name in wanted)
    names = ", ".join(file.name for file in files[:5]) or "no files"
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    # A subdirectory may hold a model: TensorFlow Serving and MLflow, for instance, keep versions there.
    inside = list(path.iterdir()) if path.is_dir() else []
    below = sorted(inner for inner in inside if inner.is_dir() and any(map(_format_of, inner.iterdir())))
    hint = f" Its subdirectory {below[-1].name} holds one: set modelPath to {below[-1]}." if below else ""
    return ModelError(f"{_NONE} {path} holds {names}{more}; put one model there: {titles}.{hint}")
