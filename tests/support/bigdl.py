"""Writes small `.model` files, as BigDL's saveModule() does."""

import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cluster_serving.node.models.bigdl.schema import ModuleMessage

NN = "com.intel.analytics.bigdl.nn."
FLOAT, QUANTIZED = 2, 1


class ModelFile:
    """A model in the making: modules that are put together, and the storages of their weights."""

    def __init__(self) -> None:
        self._storages: dict[int, dict[str, Any]] = {}

    def storage(self, values: ArrayLike = (), codes: bytes = b"") -> int:
        """Keep numbers, or numbers and the bytes of int8 weights; returns the id for `tensor`."""
        packed = np.asarray(values, "<f4").tobytes()
        key = 1000 + len(self._storages)
        self._storages[key] = {"float_data": [packed], "bytes_data": [codes] if codes else []}
        return key

    def tensor(
        self, storage: int, size: Sequence[int], stride: Sequence[int] = (), offset: int = 1, kind: int = 0
    ) -> dict[str, Any]:
        """A tensor as a view of a storage; `offset` counts from 1, `kind` is `QUANTIZED` for int8."""
        steps = stride or [int(np.prod(size[at + 1 :])) for at in range(len(size))]
        shape = {"size": list(size), "stride": list(steps), "offset": offset}
        return {**shape, "datatype": FLOAT, "storage": {"id": storage}, "tensorType": kind}

    def weights(self, *arrays: ArrayLike) -> list[dict[str, Any]]:
        """Tensors with a storage each."""
        return [self.tensor(self.storage(each), np.shape(each)) for each in arrays]

    def module(
        self,
        class_name: str,
        *children: Any,
        name: str = "",
        attributes: Mapping[str, Any] | None = None,
        parameters: Sequence[dict[str, Any]] = (),
        predecessors: Sequence[str] = (),
    ) -> Any:
        """A module; a class without a package is one of `nn`."""
        message = ModuleMessage(
            moduleType=class_name if "." in class_name else NN + class_name,
            name=name,
            namePostfix=f"{len(children):x}ab",
            subModules=children,
            hasParameters=bool(parameters),
            parameters=parameters,
            preModules=predecessors,
            version="0.13.0",
        )
        for key, value in (attributes or {}).items():
            _set(message.attr[key], value)
        return message

    def linear(self, weight: ArrayLike, bias: ArrayLike | None = None, **named: Any) -> Any:
        """A Linear layer of these weights."""
        return self.module("Linear", parameters=self.weights(*[weight] if bias is None else [weight, bias]), **named)

    def graph(self, *nodes: Any, inputs: Sequence[str], outputs: Sequence[str], **edges: Mapping[str, int]) -> Any:
        """A static graph of named nodes; `edges` of a node say which element of which predecessor it takes, -1 for all."""
        named = {f"{name}_edges": dict(each) for name, each in edges.items()}
        return self.module(
            "StaticGraph", *nodes, attributes={"inputNames": list(inputs), "outputNames": list(outputs), **named}
        )

    def save(self, path: Path, root: Any, weights: Path | None = None) -> Path:
        """Write the definition with all weights in it, or with the weights in a file of their own."""
        if weights is None:
            stored = root.attr["global_storage"].nameAttrListValue
            for at, (key, data) in enumerate(self._storages.items()):
                stored.attr[str(at)].tensorValue.storage.MergeFrom(_storage(key, data))
        else:
            weights.write_bytes(self._weight_file())
        path.write_bytes(root.SerializeToString())
        return path

    def _weight_file(self) -> bytes:
        body = struct.pack(">ii", 3721, len(self._storages))
        for key, data in self._storages.items():
            values = np.frombuffer(data["float_data"][0], "<f4")
            body += struct.pack(">iii", key, 0, len(values)) + values.astype(">f4").tobytes()
        return body + struct.pack(">i", 16) + hashlib.md5(body, usedforsecurity=False).digest()


def _storage(key: int, data: dict[str, Any]) -> Any:
    message = ModuleMessage(weight={"storage": {"id": key, "datatype": FLOAT, **data}})
    return message.weight.storage


def _set(message: Any, value: Any) -> None:
    """Give an attribute a value: its type is that of the Python one."""
    match value:
        case bool():
            message.boolValue = value
        case int():
            message.int32Value = value
        case float():
            message.doubleValue = value
        case str():
            message.stringValue = value
        case {"storage": _}:
            message.tensorValue.MergeFrom(type(message.tensorValue)(**value))
        case dict():
            message.nameAttrListValue.SetInParent()
            for name, number in value.items():
                message.nameAttrListValue.attr[name].int32Value = number
        case list():
            message.arrayValue.size = len(value)
            _fill(message.arrayValue, value)
        case _:
            message.bigDLModuleValue.CopyFrom(value)


def _fill(array: Any, values: list[Any]) -> None:
    for value in values:
        match value:
            case int():
                array.i32.append(value)
            case str():
                array.str.append(value)
            case dict():
                array.tensor.add(**value)
            case _:
                array.bigDLModule.append(value)
