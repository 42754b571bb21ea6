"""Which model a path holds, and the backend that serves it."""

import importlib
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from cluster_serving.node.models.base import Backend, ModelError

# The first words of these messages are those of the original product: scripts look for them, odd spacing included.
_ONLY_ONE = (
    "Only one model is allowed to exist in model folder, "
    "please check your model folder to keep justone model in the directory"
)
_NONE = "There is no model detected in your directory.Please refer to document for supported model types."
_NO_PATH = "Your model path provided in config is empty, please check your model path."
_INVALID = "Invalid model type, please check your model directory"

_WEIGHTS = ".bin"


class _Kind(msgspec.Struct, frozen=True):
    """A backend: the extension that marks its models, the package it imports, the extra that installs that package."""

    title: str
    extension: str
    package: str
    extra: str


_KINDS = {
    "onnx": _Kind("ONNX (.onnx)", ".onnx", "onnxruntime", "onnx"),
    "openvino": _Kind("OpenVINO IR (.xml + .bin)", ".xml", "openvino", "openvino"),
    "python": _Kind("Python (.py)", ".py", "numpy", "node"),
}
_BACKEND_OF = {kind.extension: name for name, kind in _KINDS.items()}
_SERVED = ", ".join(kind.title for kind in _KINDS.values())

_NOT_YET_SERVED = {
    ".caffemodel": "Caffe",
    ".prototxt": "Caffe",
    ".pb": "TensorFlow",
    ".ckpt": "TensorFlow checkpoint",
    ".meta": "TensorFlow checkpoint",
    ".h5": "Keras",
    ".hdf5": "Keras",
    ".keras": "Keras",
    ".model": "BigDL",
    ".pt": "PyTorch",
    ".pt2": "PyTorch",
    ".pth": "PyTorch",
}


class Detected(msgspec.Struct, frozen=True):
    """A model on disk: the `backend` that serves it ("onnx", "openvino" or "python") and the files that it needs.

    A worker is told of it in JSON, so the fields hold the paths as text.
    """

    backend: str
    definition_path: str
    weights_path: str | None = None

    @property
    def definition(self) -> Path:
        """The model file, or the one that describes the model."""
        return Path(self.definition_path)

    @property
    def weights(self) -> Path | None:
        """The file of the weights where the backend must be told about it (OpenVINO IR)."""
        return None if self.weights_path is None else Path(self.weights_path)


class LoadOptions(msgspec.Struct, frozen=True):
    """How a worker runs its model.

    `threads` for one call; `precision` of the arithmetic, "f32" or "bf16" (only OpenVINO heeds it).
    """

    threads: int = 1
    precision: str = "f32"


def detect(model_path: str, model_type: str | None = None) -> Detected:
    """Find the one model at a path.

    Args:
        model_path: a directory, looked at without its subdirectories, or a model file; plain or as a `file://` URL.
        model_type: look for models of this backend only; `None` for any.

    Raises:
        ModelError: no model, more than one, half of one, one that this version does not serve, or nothing readable.
    """
    path = _local_path(model_path)
    backend = _backend_name(model_type)
    try:
        detected = _choose(path, _candidates(path), backend)
        for file in (detected.definition, detected.weights):
            if file is not None:
                file.open("rb").close()
    except OSError as error:
        raise ModelError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    return detected


def load(detected: Detected, options: LoadOptions) -> Backend:
    """Load a model with its backend, which is imported only now.

    Raises:
        ModelError: the backend's package is missing or broken, or it cannot load the model.
    """
    kind = _KINDS[detected.backend]
    try:
        module = importlib.import_module(f"cluster_serving.node.models.{detected.backend}")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == kind.package:
            raise ModelError(
                f"{detected.definition} needs the package {kind.package}, which is not installed: "
                f"pip install 'cluster-serving[{kind.extra}]'"
            ) from error
        raise ModelError(
            f"{detected.definition} needs the package {kind.package}, which cannot be imported here: {error}"
        ) from error
    backend: Backend = module.load(detected, options.threads, options.precision)
    return backend


def _local_path(model_path: str) -> Path:
    if not model_path.strip():
        raise ModelError(f"{_NO_PATH} Set modelPath to a directory with one model, or to a model file.")
    url = urlsplit(model_path)
    if not url.scheme or "://" not in model_path:
        return Path(model_path)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise ModelError(f"{_NO_PATH} {model_path} is not on this machine: copy the model here and give its path.")
    return Path(unquote(url.path))


def _backend_name(model_type: str | None) -> str | None:
    if model_type is None:
        return None
    name = model_type.strip().lower()
    if name not in _KINDS:
        raise ModelError(f"{_INVALID}: the model type {model_type!r} is none of {', '.join(_KINDS)}.")
    return name


def _candidates(path: Path) -> list[Path]:
    """The files to choose from: those of a directory, or the named file with the other half of its model."""
    if path.is_dir():
        # Names with a leading dot are what editors, macOS and Jupyter leave behind.
        return sorted(file for file in path.iterdir() if not file.name.startswith(".") and not file.is_dir())
    if not path.is_file():
        raise ModelError(f"{_NO_PATH} {path} does not exist.")
    suffix = path.suffix.lower()
    if suffix in (_KINDS["openvino"].extension, _WEIGHTS):
        return sorted(file for file in path.parent.iterdir() if file.stem == path.stem and _is_half_of_ir(file))
    if suffix not in _BACKEND_OF and suffix not in _NOT_YET_SERVED:
        raise ModelError(f"{_INVALID}: {path} is not a model file; this version serves {_SERVED}.")
    return [path]


def _is_half_of_ir(file: Path) -> bool:
    return file.suffix.lower() in (_KINDS["openvino"].extension, _WEIGHTS)


def _choose(path: Path, files: list[Path], backend: str | None) -> Detected:
    models = [
        file for file in files if _BACKEND_OF.get(file.suffix.lower()) in (_KINDS if backend is None else (backend,))
    ]
    others = [file for file in files if file.suffix.lower() in _NOT_YET_SERVED] if backend is None else []
    if len(models) > 1 or (models and others):
        found = ", ".join(file.name for file in (*models, *others))
        raise ModelError(
            f"{_ONLY_ONE}: {path} holds {found}; take away all but one, or give the path of the model file itself."
        )
    if others:
        raise _not_yet_served(others)
    if not models:
        raise _nothing_found(path, files, backend)
    definition = models[0]
    name = _BACKEND_OF[definition.suffix.lower()]
    weights = str(_weights_of(definition, files)) if name == "openvino" else None
    return Detected(name, str(definition), weights)


def _weights_of(definition: Path, files: list[Path]) -> Path:
    for file in files:
        if file.suffix.lower() == _WEIGHTS and file.stem == definition.stem:
            return file
    raise ModelError(
        f"{definition} is half of an OpenVINO model: put its weights {definition.stem}{_WEIGHTS} beside it."
    )


def _not_yet_served(files: list[Path]) -> ModelError:
    formats = {_NOT_YET_SERVED[file.suffix.lower()]: file for file in reversed(files)}
    found = " and ".join(f"{file} is a {title} model" for title, file in sorted(formats.items()))
    return ModelError(f"{_INVALID}: {found}, which this version does not serve yet; it serves {_SERVED}.")


def _nothing_found(path: Path, files: list[Path], backend: str | None) -> ModelError:
    weights = [file for file in files if file.suffix.lower() == _WEIGHTS]
    if weights and backend in (None, "openvino"):
        return ModelError(
            f"{_NONE} {weights[0]} is half of an OpenVINO model: put its definition {weights[0].stem}.xml beside it."
        )
    found = ", ".join(file.name for file in files[:5]) or "no files"
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    wanted = _SERVED if backend is None else _KINDS[backend].title
    return ModelError(f"{_NONE} {path} holds {found}{more}; put one model there: {wanted}.")
