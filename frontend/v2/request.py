"""Request of `infer`: a JSON head, followed by the data of the binary tensors.

| {"inputs": [{"name", "shape", "datatype", "parameters": {"binary_data_size": n}}, ...], ...} | n bytes | ...
|<------------------------ Inference-Header-Content-Length ---------------------------------->|
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeGuard

import msgspec
from msgspec import Meta

from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.http.json_body import check_parts, refuse_callback

_MAX_DIGITS = 18

Parameters = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, max_length=1024)]


class InputHead(msgspec.Struct, frozen=True):
    """Head of one tensor, with its `data` unless the data are binary."""

    name: Name
    shape: tuple[int, ...]
    datatype: str
    parameters: Parameters | None = None
    data: Any = None


class OutputHead(msgspec.Struct, frozen=True):
    """Head of one wanted output."""

    name: Name
    parameters: Parameters | None = None


class InferRequest(msgspec.Struct, frozen=True):
    """Head of a request."""

    inputs: Annotated[tuple[InputHead, ...], Meta(max_length=1024)]
    id: str | None = None
    parameters: Parameters | None = None
    outputs: tuple[OutputHead, ...] | None = None
    callback: Any = None


_decoder = msgspec.json.Decoder(InferRequest)


def decode_request(body: bytes, head_bytes: str | None) -> tuple[InferRequest, list[memoryview | None]]:
    """Return the head of a request, and the binary data of each input with such data.

    Args:
        body: body without compression.
        head_bytes: header `Inference-Header-Content-Length`. None: all of the body is the head.

    Raises:
        BadRequest: the request does not follow the protocol.
    """
    length = len(body)
    if head_bytes is not None:
        if not (head_bytes.isascii() and head_bytes.isdigit() and len(head_bytes) <= _MAX_DIGITS):
            raise BadRequest(f"Inference-Header-Content-Length is {head_bytes[:40]!r}, not a number of bytes")
        length = int(head_bytes)
        if not 0 < length <= len(body):
            raise BadRequest(f"Inference-Header-Content-Length is {head_bytes}, and the body has {len(body)} bytes")
    head = body[:length]
    check_parts(head)
    try:
        request = _decoder.decode(head)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise BadRequest(f"the request does not follow the Open Inference Protocol: {error}") from error
    refuse_callback(request.callback)
    refuse_callback((request.parameters or {}).get("callback"))
    return request, _binary(request.inputs, memoryview(body)[length:])


def refuse_shared_memory(parameters: Parameters | None, place: str) -> None:
    """Refuse a tensor in shared memory.

    Raises:
        BadRequest: the tensor is in shared memory.
    """
    if parameters and "shared_memory_region" in parameters:
        raise BadRequest(f"{place} is in shared memory, which is not supported: send and take the data in the body")


def _binary(inputs: Sequence[InputHead], data: memoryview) -> list[memoryview | None]:
    parts: list[memoryview | None] = []
    start = 0
    for tensor in inputs:
        refuse_shared_memory(tensor.parameters, f"input {tensor.name!r}")
        size = (tensor.parameters or {}).get("binary_data_size")
        if size is None:
            parts.append(None)
            continue
        if not is_size(size):
            raise BadRequest(f"input {tensor.name!r}: binary_data_size is {str(size)[:40]}, not a number of bytes")
        if tensor.data is not None:
            raise BadRequest(f"input {tensor.name!r} has both data and binary_data_size: send only one of the two")
        if size > len(data) - start:
            raise BadRequest(
                f"input {tensor.name!r}: binary_data_size is {size}, and the body has {len(data) - start} bytes left for it"
            )
        parts.append(data[start : start + size])
        start += size
    if start != len(data):
        raise BadRequest(f"the body has {len(data) - start} bytes behind the data of the last input")
    return parts


def is_size(value: object) -> TypeGuard[int]:
    """Return whether a parameter is a whole number of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
