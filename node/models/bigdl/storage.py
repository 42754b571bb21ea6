"""The numbers of a model: storages by id, in the `.model` itself or in a separate file, and tensors as views of storages.

A file of weights, entirely big-endian:

    int32 3721 | int32 count | count x (int32 id | int32 type | int32 n | n values) | int32 16 | MD5 of all before the 16
"""

import hashlib
import struct
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from cluster_serving.node.models.base import ModelError

_MAGIC = 3721
_MD5_BYTES = 16
_FOOTER_BYTES = 4 + _MD5_BYTES
# By type number: float, double, char, bool, int, short, long, byte. Strings (4 and 8) hold no weights.
_TYPES = {0: ">f4", 1: ">f8", 2: ">u2", 3: ">u1", 5: ">i4", 6: ">i2", 7: ">i8", 9: ">i1"}
_STRING_TYPES = (4, 8)


class Storage(msgspec.Struct, frozen=True):
    """The numbers of a storage, float32 in one dimension. `codes` are the bytes of int8 weights, a byte for each number."""

    values: torch.Tensor
    codes: bytes = b""


class Storages(msgspec.Struct, frozen=True):
    """All storages of a model by id. `source` is the file that holds the storages, or `None` without a file."""

    by_id: dict[int, Storage]
    source: Path | None
    definition: Path

    def find(self, message: Any, owner: str) -> Storage:
        """Return the storage that a `TensorStorage` names.

        Raises:
            ModelError: the storage is missing.
        """
        if message.id in self.by_id:
            return self.by_id[message.id]
        own = _storage(message)
        if len(own.values):
            return own
        if self.source is None:
            raise ModelError(
                f"{self.definition} holds no weights: put the file that saveModule() wrote them to beside it, as "
                f"{self.definition.stem}.bin."
            )
        mend = "save the model again" if self.source == self.definition else "give the two files of one saveModule()"
        raise ModelError(f"{self.source} lacks weights for {owner}: {mend}.")


def read_storages(root: Any, definition: Path, weights: Path | None) -> Storages:
    """Collect the storages in the root module's attribute `global_storage`, or else in the file of weights.

    Raises:
        ModelError: the file of weights holds no weights of BigDL, or a file is damaged.
    """
    if "global_storage" in root.attr:
        tensors = root.attr["global_storage"].nameAttrListValue.attr.values()
        # Tensors that share a storage share the storage's id. The numbers may stand at only one of the tensors.
        messages = sorted((each.tensorValue.storage for each in tensors), key=lambda storage: storage.ByteSize())
        largest = {message.id: message for message in messages}
        try:
            by_id = {key: _storage(message) for key, message in largest.items()}
        except ValueError as error:
            raise ModelError(
                f"{definition} is damaged: a weight ends in the middle of a number; copy it again."
            ) from error
        return Storages(by_id, definition, definition)
    if weights is None:
        return Storages({}, None, definition)
    try:
        content = weights.read_bytes()
    except OSError as error:
        raise ModelError(f"{weights} cannot be read: {error.strerror}") from error
    return Storages(dict(_read_weights(content, weights)), weights, definition)


def view(storage: Storage, message: Any) -> torch.Tensor:
    """Return the tensor that a message describes: a strided view of its storage.

    Raises:
        ValueError: the tensor reaches beyond the storage.
    """
    size = list(message.size)
    stride = list(message.stride) or [prod(size[at + 1 :]) for at in range(len(size))]
    start = message.offset - 1  # offsets in the file begin at 1
    if len(size) != len(stride) or start < 0 or min([0, *size, *stride]) < 0:
        raise ValueError(f"has the shape {size}, the strides {stride} and the offset {message.offset}")
    last = start + sum((dim - 1) * step for dim, step in zip(size, stride, strict=True))
    if last >= len(storage.values) or prod(size) > len(storage.values):
        raise ValueError(f"of shape {size} at {message.offset} reaches beyond its {len(storage.values)} numbers")
    return storage.values.as_strided(size, stride, start)


def dequantized(storage: Storage, message: Any) -> torch.Tensor:
    """Return the float32 values of int8 weights, within half a step. A row is scaled by its largest magnitude over 127.

    The storage's numbers are the maxima of the rows, then the minima, then the sums.

    Raises:
        ValueError: the storage holds a wrong number of codes or scales.
    """
    size = list(message.size)
    rows = size[0] if size else 0
    if rows < 1 or len(storage.codes) != prod(size) or len(storage.values) < 2 * rows:
        raise ValueError(f"of int8 and shape {size} has {len(storage.codes)} codes and {len(storage.values)} scales")
    codes = torch.frombuffer(bytearray(storage.codes), dtype=torch.int8).reshape(rows, -1)
    extremes = storage.values[: 2 * rows].reshape(2, rows).abs().amax(0)
    return (codes * (extremes / 127).unsqueeze(1)).reshape(size)


def _storage(message: Any) -> Storage:
    packed = [(b"".join(message.float_data), "<f4"), (b"".join(message.double_data), "<f8")]
    arrays: list[NDArray[Any]] = [np.frombuffer(data, dtype) for data, dtype in packed if data]
    numbers = list(message.int_data) or list(message.long_data) or list(message.bool_data)
    values = arrays[0] if arrays else np.array([] if message.bytes_data else numbers)
    return Storage(_float32(values), b"".join(message.bytes_data))


def _float32(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def _read_weights(content: bytes, path: Path) -> Iterator[tuple[int, Storage]]:
    if len(content) < 8 + _FOOTER_BYTES or struct.unpack_from(">i", content)[0] != _MAGIC:
        raise ModelError(
            f"{path} is no file of BigDL weights: put the file that saveModule() wrote with the definition beside it."
        )
    body, footer = content[:-_FOOTER_BYTES], content[-_FOOTER_BYTES:]
    checksum = hashlib.md5(body, usedforsecurity=False).digest()
    damaged = ModelError(f"{path} is damaged (its checksum or its lengths are wrong): copy or save the weights again.")
    if footer != struct.pack(">i", _MD5_BYTES) + checksum:
        raise damaged
    at = 8
    try:
        for _ in range(struct.unpack_from(">i", body, 4)[0]):
            key, kind, count = struct.unpack_from(">iii", body, at)
            at += 12
            if kind in _STRING_TYPES:
                for _ in range(count):
                    at += 4 + struct.unpack_from(">i", body, at)[0]
                continue
            if count < 0:  # numpy would read all that is left
                raise ValueError
            values = np.frombuffer(body, _TYPES[kind], count, at)
            at += values.nbytes
            yield key, Storage(_float32(values))
    except (KeyError, ValueError, struct.error) as error:
        raise damaged from error
