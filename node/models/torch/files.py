"""Reader of the files that PyTorch writes. The content of a file tells its kind, and the name does not.

zip with constants.pkl                         TorchScript, of torch.jit.save
zip with models/*.json, or
    serialized_exported_program.json           exported program, of torch.export.save
zip with data.pkl, or 80 02 8a 0a 6c fc ...    pickle, of torch.save: a module, or only weights
"""

import os
import pickle
import pickletools
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch
from torch.export import ExportedProgram

from cluster_serving.node.models.base import ModelError

_PICKLE = b"\x80"
# First bytes of a file of torch.save before version 1.6: a magic number, as a pickle. Later versions write zip archives.
_LEGACY = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
_BEFORE_LEGACY_OBJECT = 3  # pickles: the magic number, the version, the machine
_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_DICTS = ("dict", "collections.OrderedDict")

_SAVE = (
    "save torch.jit.script(model) with torch.jit.save, or torch.export.export(model, example) with torch.export.save"
)
_AGAIN = "copy or save the model again."
# Without modelType, the .py file would be a second model in the directory.
_BESIDE = "put the file of its module beside it and set modelType: pytorch"


Model = torch.jit.ScriptModule | ExportedProgram | torch.nn.Module


def read(path: Path, allow_pickle: bool) -> Model:
    """Read the model in a file, onto the CPU.

    Raises:
        ModelError: the file is broken, holds no model, or is a pickle and `allow_pickle` is false.
    """
    with path.open("rb") as file:
        start = file.read(len(_LEGACY))
    if not start:
        raise ModelError(f"{path} is empty; {_AGAIN}")
    if start.startswith(b"PK"):
        return _read_archive(path, allow_pickle)
    if start == _LEGACY:
        with path.open("rb") as file:
            return _read_pickle(path, _root(file, path, skip=_BEFORE_LEGACY_OBJECT), allow_pickle)
    if start.startswith(_PICKLE):
        raise ModelError(f"{path} is a pickle that torch.save did not write; {_SAVE}.")
    if tarfile.is_tarfile(path):
        raise ModelError(f"{path} is a tar archive, which PyTorch no longer writes; {_SAVE}.")
    raise ModelError(f"{path} is not a file of PyTorch, or it is broken; {_SAVE}.")


@contextmanager
def no_deprecations() -> Generator[None, None, None]:
    """Silence torch's warnings about the future of TorchScript: the files are the user's, and still load."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`torch\.jit", DeprecationWarning)
        yield


def first_line(error: BaseException) -> str:
    """Return the first line of an error. The following lines are a trace of torch's own code."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _read_archive(path: Path, allow_pickle: bool) -> Model:
    try:
        with zipfile.ZipFile(path) as archive:
            # A truncated file may end with the directory of an inner archive.
            if min((each.header_offset for each in archive.infolist()), default=0) > 0:
                raise zipfile.BadZipFile("its end is missing")
            names = archive.namelist()
            inner = {name.partition("/")[2] for name in names}
            if "serialized_exported_program.json" in names or any(
                name.startswith("models/") and name.endswith(".json") for name in inner
            ):
                return _read_exported(path, allow_pickle)
            if "constants.pkl" in inner:
                return _read_script(path)
            if "data.pkl" in inner:
                with archive.open(next(name for name in names if name.endswith("/data.pkl"))) as file:
                    root = _root(file, path)
                return _read_pickle(path, root, allow_pickle)
    except zipfile.BadZipFile as error:
        raise ModelError(f"{path} is cut off or damaged ({first_line(error)}); {_AGAIN}") from error
    if any(name.startswith("data/aotinductor/") for name in inner):
        raise ModelError(f"{path} holds code compiled for one machine, not a model; {_SAVE}.")
    raise ModelError(f"{path} is a zip archive without a PyTorch model in it; {_SAVE}.")


def _read_script(path: Path) -> torch.jit.ScriptModule:
    try:
        with no_deprecations():
            jit: Any = torch.jit  # jit.load has no types
            model: torch.jit.ScriptModule = jit.load(str(path), map_location="cpu")
    except Exception as error:  # mostly RuntimeError, but the reader's errors have no common base class
        raise _unreadable(path, error) from error
    return model


def _read_exported(path: Path, allow_pickle: bool) -> ExportedProgram:
    try:
        # torch.export.load takes an open file of any name, but only paths that end in .pt2.
        with _pickles(allow_pickle), path.open("rb") as file:
            return torch.export.load(file)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} holds Python objects besides tensors, and reading them may run code; set allowPickle: true if you trust "
            "its author."
        ) from error
    except Exception as error:  # the parts of torch.export raise errors of many classes
        raise _unreadable(path, error) from error


@contextmanager
def _pickles(allowed: bool) -> Generator[None, None, None]:
    """Restrict torch.export.load to plain tensors unless pickles are allowed.

    By default, torch.export.load unpickles any object in the archive.
    """
    before = os.environ.get(_WEIGHTS_ONLY)
    if not allowed:
        os.environ[_WEIGHTS_ONLY] = "1"
    try:
        yield
    finally:
        os.environ.pop(_WEIGHTS_ONLY, None)
        if before is not None:
            os.environ[_WEIGHTS_ONLY] = before


def _root(file: IO[bytes], path: Path, skip: int = 0) -> str:
    """Return the kind of object in a pickle, without executing the pickle: `dict`, or the dotted name of a class or function."""
    texts: list[str] = []
    try:
        for _ in range(skip):
            for _ in pickletools.genops(file):
                pass
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "GLOBAL":
                return str(argument).replace(" ", ".")
            if opcode.name == "STACK_GLOBAL":
                return ".".join(texts[-2:])
            if opcode.name.startswith("EMPTY_"):
                return opcode.name.removeprefix("EMPTY_").lower()
            if isinstance(argument, str):
                texts.append(argument)
    except ValueError as error:
        raise ModelError(f"{path} is cut off or damaged ({first_line(error)}); {_AGAIN}") from error
    return "single value"


def _read_pickle(path: Path, root: str, allow_pickle: bool) -> torch.nn.Module:
    if root in _DICTS:
        raise _only_weights(path)
    if root.startswith("torch._utils."):
        raise ModelError(f"{path} holds a tensor, not a model; {_SAVE}.")
    if "." not in root:
        raise ModelError(f"{path} holds a {root}, not a model; {_SAVE}.")
    if not allow_pickle:
        raise ModelError(
            f"{path} holds a pickled {root}, and reading a pickle runs whatever code its author put there: {_SAVE}, or set "
            "allowPickle: true if you trust its author."
        )
    model = _unpickle(path, root)
    if isinstance(model, torch.nn.DataParallel):
        model = model.module  # DataParallel would look for the GPUs of the training
    if isinstance(model, dict):
        raise _only_weights(path)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{path} holds a {type(model).__name__}, not a model; {_SAVE}.")
    return model


def _unpickle(path: Path, root: str) -> Any:
    # In front, as Python does for a script: the class's module lies beside the file.
    directory = str(path.absolute().parent)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return torch.load(path, map_location="cpu", weights_only=False)
    except (AttributeError, ImportError) as error:
        if root.startswith("__main__."):
            raise ModelError(
                f"{path} needs the class {root}, of the script that saved it: define the class in a module of its own, save "
                f"the model again, and {_BESIDE}."
            ) from error
        raise ModelError(
            f"{path} needs the class {root}, which cannot be found ({first_line(error)}): {_BESIDE}, or install its "
            "package."
        ) from error
    except (Exception, SystemExit) as error:  # the pickle's own code may raise any exception
        raise _unreadable(path, error) from error


def _only_weights(path: Path) -> ModelError:
    return ModelError(
        f"{path} holds a state dict or a checkpoint, not a model by itself: build the model in Python, load its weights, and "
        f"{_SAVE}."
    )


def _unreadable(path: Path, error: BaseException) -> ModelError:
    reason = f"{type(error).__name__}: {first_line(error).partition('. ')[0].rstrip('.')}"
    return ModelError(f"{path} cannot be loaded by PyTorch {torch.__version__} ({reason}); {_AGAIN}")
