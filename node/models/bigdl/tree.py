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
    """The layer cannot be served. The text continues a sentence after the layer's name and class."""


class ModelFile(msgspec.Struct):
    """The parts that all modules of a file share: `path`, the `storages` of the weights, and the layers that are not served."""

    path: Path
    storages: Storages
    refused: list[str] = []


class Module:
    """A module of the file: a layer, or a container of modules.

    Attributes have the names of the constructor's parameters in BigDL. A missing or null attribute has the default value. Without
    a default, reading the attribute raises `NotServed`.
    """

    def __init__(self, message: Any, file: ModelFile) -> None:
        self._message = message
        self.file = file

    @property
    def java_class(self) -> str:
        """Full name of the class, in printable characters."""
        return "".join(each for each in self._message.moduleType if each.isprintable())

    @property
    def short_class(self) -> str:
        """Name of the class without the package, which differs between versions."""
        return self.java_class.rpartition(".")[2]

    @property
    def name(self) -> str:
        """Name that the user gave to the module, or else the name that BigDL made up."""
        return self.given_name or self.short_class + str(self._message.namePostfix)

    @property
    def given_name(self) -> str:
        """Name that the user gave to the module, or an empty string."""
        return str(self._message.name)

    @property
    def predecessors(self) -> list[str]:
        """Names of the graph nodes whose outputs the node takes."""
        return list(self._message.preModules)

    @property
    def children(self) -> list["Module"]:
        """Modules of a container."""
        return [Module(each, self.file) for each in self._message.subModules]

    def attribute(self, key: str) -> Any:
        """Return the value of an attribute as message or Python value, or `None` if the attribute is missing or null."""
        if key not in self._message.attr:
            return None
        value = self._message.attr[key]
        kind = value.WhichOneof("value")
        return None if kind is None else getattr(value, kind)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return an attribute that is a whole number."""
        return int(self._required(key, default, lambda value: isinstance(value, int)))

    def number(self, key: str, default: float | None = None) -> float:
        """Return an attribute that is a number."""
        return float(self._required(key, default, lambda value: isinstance(value, (int, float))))

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Return an attribute that is true or false."""
        return bool(self._required(key, default, lambda value: isinstance(value, bool)))

    def channels_last(self, key: str = "format") -> bool:
        """Return whether the layer's images are NHWC. Without the attribute, images are NCHW."""
        value = self.attribute(key)
        return value in (_NHWC, "NHWC", "channel_last", "channels_last")

    def integers(self, key: str, default: list[int] | None = None) -> list[int]:
        """Return an attribute that is an array of whole numbers. A single number counts as an array."""
        value = self._required(key, default, lambda value: isinstance(value, int) or hasattr(value, "i32"))
        if isinstance(value, (int, list)):
            return [value] if isinstance(value, int) else value
        return list(value.i32)

    def row_shape(self, key: str) -> list[int]:
        """Return an attribute that is the shape of one tensor without the batch axis.

        An empty list means that the attribute is missing or null, or the shape of several tensors.
        """
        value = self.attribute(key)
        return list(value.shapeValue) if hasattr(value, "shapeValue") else []

    def strings(self, key: str) -> list[str]:
        """Return an attribute that is an array of strings."""
        return list(self._required(key, None, lambda value: hasattr(value, "str")).str)

    def edges(self, key: str) -> dict[str, int]:
        """Return an attribute that maps names to whole numbers, or an empty dict if the attribute is missing."""
        value = self._required(key, {}, lambda value: hasattr(value, "attr"))
        return {} if isinstance(value, dict) else {name: each.int32Value for name, each in value.attr.items()}

    def module(self, key: str) -> "Module | None":
        """Return an attribute that is a module, or `None` if the attribute is missing or null."""
        value = self.attribute(key)
        return Module(value, self.file) if getattr(value, "moduleType", "") else None

    def modules(self, key: str) -> list["Module"]:
        """Return an attribute that is an array of modules."""
        value = self._required(key, None, lambda value: hasattr(value, "bigDLModule"))
        return [Module(each, self.file) for each in value.bigDLModule]

    def tensor(self, key: str) -> torch.Tensor | None:
        """Return an attribute that is a tensor, as float32, or `None` if the attribute is missing or empty."""
        value = self.attribute(key)
        return self._tensor(value) if hasattr(value, "tensorType") else None

    def tensors(self, key: str) -> list[torch.Tensor]:
        """Return an attribute that is a tensor or an array of tensors."""
        value = self.attribute(key)
        messages = value.tensor if hasattr(value, "tensor") else [value] if hasattr(value, "tensorType") else []
        return [each for each in map(self._tensor, messages) if each is not None]

    @property
    def parameters(self) -> list[torch.Tensor]:
        """Weights of the layer in the layer's order, float32: as a rule the weight, then the bias if there is a bias."""
        message = self._message
        # Files of version 0.5 and layers of int8 have the fields weight and bias instead of the list.
        messages = message.parameters if message.hasParameters else [message.weight, message.bias]
        return [each for each in map(self._tensor, messages) if each is not None]

    @property
    def weight(self) -> torch.Tensor:
        """First parameter."""
        if not self.parameters:
            raise NotServed("has no weights")
        return self.parameters[0]

    @property
    def bias(self) -> torch.Tensor | None:
        """Second parameter, or `None`."""
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
        """Return the tensor that a message describes. A storage id of -1, or no storage, stands for an empty tensor."""
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
        weights: the separate file of the weights, if there is one. Unused if the definition holds the weights.

    Raises:
        ModelError: a file is no file of BigDL, or is damaged.
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
