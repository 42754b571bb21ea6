"""A `.model` file as a tree of modules, their attributes and their weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
from google.protobuf.message import DecodeError

from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.bigdl.schema import ModuleMessage
from cluster_serving.node.models.bigdl.storage import Storages, dequantized, read_storages, view

_JAVA_OBJECT_STREAM = b"\xac\xed\x00\x05"
_NHWC = 1
_QUANTIZED = 1


class NotServed(Exception):
    """A layer that cannot be served; the text goes on after the layer's name and class."""


class ModelFile(msgspec.Struct):
    """What all modules of one file share: its `path`, the `storages` of its weights, and what cannot be served of it."""

    path: Path
    storages: Storages
    refused: list[str] = []


class Module:
    """One module of the file: a layer, or a container of others.

    Attributes are those of the class's constructor in BigDL, by their names there. A missing or null one is the default; without
    a default it raises `NotServed`.
    """

    def __init__(self, message: Any, file: ModelFile) -> None:
        self._message = message
        self.file = file

    @property
    def java_class(self) -> str:
        """The full name of the class, fit to be shown."""
        return "".join(each for each in self._message.moduleType if each.isprintable())

    @property
    def short_class(self) -> str:
        """The class without its package, which differs between versions."""
        return self.java_class.rpartition(".")[2]

    @property
    def name(self) -> str:
        """The user's name of it, or the one that BigDL made up."""
        return self.given_name or self.short_class + str(self._message.namePostfix)

    @property
    def given_name(self) -> str:
        """The user's name of it, empty without."""
        return str(self._message.name)

    @property
    def predecessors(self) -> list[str]:
        """The names of the nodes of a graph whose outputs this one takes."""
        return list(self._message.preModules)

    @property
    def children(self) -> list["Module"]:
        """The modules of a container."""
        return [Module(each, self.file) for each in self._message.subModules]

    def attribute(self, key: str) -> Any:
        """The value of an attribute as its message or Python value; `None`: it is missing or null."""
        if key not in self._message.attr:
            return None
        value = self._message.attr[key]
        kind = value.WhichOneof("value")
        return None if kind is None else getattr(value, kind)

    def integer(self, key: str, default: int | None = None) -> int:
        """An attribute that is a whole number."""
        return int(self._required(key, default, lambda value: isinstance(value, int)))

    def number(self, key: str, default: float | None = None) -> float:
        """An attribute that is a number."""
        return float(self._required(key, default, lambda value: isinstance(value, (int, float))))

    def flag(self, key: str, default: bool | None = None) -> bool:
        """An attribute that is true or false."""
        return bool(self._required(key, default, lambda value: isinstance(value, bool)))

    def channels_last(self, key: str = "format") -> bool:
        """Whether the layer's images are NHWC; NCHW if the attribute is missing."""
        value = self.attribute(key)
        return value in (_NHWC, "NHWC", "channel_last", "channels_last")

    def integers(self, key: str, default: list[int] | None = None) -> list[int]:
        """An attribute that is an array of whole numbers; a single one counts as an array."""
        value = self._required(key, default, lambda value: isinstance(value, int) or hasattr(value, "i32"))
        if isinstance(value, (int, list)):
            return [value] if isinstance(value, int) else value
        return list(value.i32)

    def row_shape(self, key: str) -> list[int]:
        """An attribute that is the shape of one tensor without its batch axis; empty: it is missing, null or of several."""
        value = self.attribute(key)
        return list(value.shapeValue) if hasattr(value, "shapeValue") else []

    def strings(self, key: str) -> list[str]:
        """An attribute that is an array of strings."""
        return list(self._required(key, None, lambda value: hasattr(value, "str")).str)

    def edges(self, key: str) -> dict[str, int]:
        """An attribute that maps names to whole numbers; empty if it is missing."""
        value = self._required(key, {}, lambda value: hasattr(value, "attr"))
        return {} if isinstance(value, dict) else {name: each.int32Value for name, each in value.attr.items()}

    def module(self, key: str) -> "Module | None":
        """An attribute that is a module; `None`: it is missing or null."""
        value = self.attribute(key)
        return Module(value, self.file) if getattr(value, "moduleType", "") else None

    def modules(self, key: str) -> list["Module"]:
        """An attribute that is an array of modules."""
        value = self._required(key, None, lambda value: hasattr(value, "bigDLModule"))
        return [Module(each, self.file) for each in value.bigDLModule]

    def tensor(self, key: str) -> torch.Tensor | None:
        """An attribute that is a tensor, float32; `None`: it is missing or empty."""
        value = self.attribute(key)
        return self._tensor(value) if hasattr(value, "tensorType") else None

    def tensors(self, key: str) -> list[torch.Tensor]:
        """An attribute that is one tensor or an array of them."""
        value = self.attribute(key)
        messages = value.tensor if hasattr(value, "tensor") else [value] if hasattr(value, "tensorType") else []
        return [each for each in map(self._tensor, messages) if each is not None]

    @property
    def parameters(self) -> list[torch.Tensor]:
        """The layer's weights in its own order, float32: as a rule the weight, then the bias if it has one."""
        message = self._message
        # Files of version 0.5 and layers of int8 have the two fields instead of the list.
        messages = message.parameters if message.hasParameters else [message.weight, message.bias]
        return [each for each in map(self._tensor, messages) if each is not None]

    @property
    def weight(self) -> torch.Tensor:
        """The first parameter."""
        if not self.parameters:
            raise NotServed("has no weights")
        return self.parameters[0]

    @property
    def bias(self) -> torch.Tensor | None:
        """The second parameter, if there is one."""
        return self.parameters[1] if len(self.parameters) > 1 else None

    def _required(self, key: str, default: Any, fits: Callable[[Any], bool]) -> Any:
        value = self.attribute(key)
        if value is None:
            if default is None:
                raise NotServed(f"lacks the attribute {key!r}")
            return default
        if not fits(value):
            raise NotServed(f"has an attribute {key!r} of another kind than expected")
        return value

    def _tensor(self, message: Any) -> torch.Tensor | None:
        """What a tensor's message describes; a storage id of -1, or none, stands for an empty tensor."""
        if not message.HasField("storage") or message.storage.id == -1 or 0 in message.size:
            return None
        try:
            storage = self.file.storages.find(message.storage, f"the layer {self.name!r} of {self.file.path}")
            return dequantized(storage, message) if message.tensorType == _QUANTIZED else view(storage, message)
        except ValueError as error:
            raise ModelError(
                f"{self.file.path} is damaged: a weight of the layer {self.name!r} {error}; copy or save the model again."
            ) from error


def read_model(path: Path, weights: Path | None) -> Module:
    """Read a definition and its weights.

    Args:
        path: the `.model` file.
        weights: the file of the weights where it is another one; unused if the definition holds them.

    Raises:
        ModelError: a file is no such file, or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise ModelError(f"{path} is empty: copy or save the model again.")
    if content.startswith(_JAVA_OBJECT_STREAM):
        raise ModelError(
            f"{path} is a Java object stream, as save() writes it: save the model with saveModule() instead."
        )
    try:
        message = ModuleMessage.FromString(content)
    except DecodeError as error:
        raise _foreign(path) from error
    if not message.moduleType:
        raise _foreign(path)
    return Module(message, ModelFile(path, read_storages(message, path, weights)))


def _foreign(path: Path) -> ModelError:
    return ModelError(
        f"{path} is no BigDL model, or only a part of one: copy it again, or save the model again with saveModule()."
    )
