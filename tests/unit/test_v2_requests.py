"""Requests of the Open Inference Protocol: from the body to arrays."""

import json
import random
from typing import Any

import numpy as np
import pytest
from tritonclient import http as triton
from tritonclient.utils import np_to_triton_dtype

from cluster_serving.client.wire.tensors import Array
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.asked import Asked, Wanted
from cluster_serving.frontend.v2.datatypes import BYTES, DTYPES
from cluster_serving.frontend.v2.request import decode_request
from cluster_serving.frontend.v2.tensors import Tensor, read_tensors

FP32 = {"name": "x", "datatype": "FP32"}


def body_of(*inputs: dict[str, Any], binary: bytes = b"", **rest: Any) -> tuple[bytes, str | None]:
    head = json.dumps({"inputs": inputs, **rest}).encode()
    return head + binary, str(len(head)) if binary else None


def read(*inputs: dict[str, Any], binary: bytes = b"") -> dict[str, Tensor]:
    request, parts = decode_request(*body_of(*inputs, binary=binary))
    return read_tensors(request.inputs, parts)


def asked(**rest: Any) -> Asked:
    request, _ = decode_request(*body_of({**FP32, "shape": [1], "data": [1]}, **rest))
    return Asked.of(request)


def from_client(array: Array, binary: bool, datatype: str = "") -> Array:
    """Return the array that arrives when Triton's client sends this one."""
    tensor = triton.InferInput("x", list(array.shape), datatype or np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array, binary_data=binary)
    body, head_bytes = triton.InferenceServerClient.generate_request_body([tensor])
    request, parts = decode_request(body, None if head_bytes is None else str(head_bytes))
    return read_tensors(request.inputs, parts)["x"].array


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", [name for name in DTYPES if name not in ("BYTES", "BF16")])
@pytest.mark.parametrize("shape", [(2, 3), (1,), ()])
def test_numbers_arrive_as_they_were_sent(datatype: str, binary: bool, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(DTYPES[datatype])
    largest = 1 if dtype.kind == "b" else np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max
    array = np.full(shape, largest, dtype)

    found = from_client(array, binary)

    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


def test_bfloat16_is_widened() -> None:
    array = np.array([[1.5, -2.0, 3e38, np.inf]], np.float32)

    found = from_client(array, binary=True, datatype="BF16")

    assert found.dtype == np.float32
    np.testing.assert_allclose(found, array, rtol=0.01)


@pytest.mark.parametrize("binary", [True, False])
def test_bytes_arrive_as_they_were_sent(binary: bool) -> None:
    found = from_client(np.array([["grün", ""], ["a\0b", "x"]], object), binary)

    texts = [text.decode() if binary else text for text in found.reshape(-1)]
    assert (found.shape, texts) == ((2, 2), ["grün", "", "a\0b", "x"])


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]])
def test_data_are_flat_or_nested(data: list[Any]) -> None:
    array = read({**FP32, "shape": [2, 3], "data": data})["x"].array

    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_json_and_binary_tensors_share_a_request() -> None:
    tensors = read(
        {"name": "a", "datatype": "INT16", "shape": [2], "parameters": {"binary_data_size": 4}},
        {"name": "b", "datatype": "INT16", "shape": [1], "data": [7]},
        {"name": "c", "datatype": "UINT8", "shape": [1, 0], "parameters": {"binary_data_size": 0}},
        {"name": "d", "datatype": "BOOL", "shape": [2], "parameters": {"binary_data_size": 2}},
        binary=b"\x01\x00\xff\xff\x00\x02",
    )

    assert [tensor.array.tolist() for tensor in tensors.values()] == [[1, -1], [7], [[]], [False, True]]


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        ({"shape": [2], "data": [1]}, r"input 'x': FP32 \[2\] has 2 elements, and the data have 1"),
        ({"shape": [-1], "data": [1]}, r"input 'x': the shape is \(-1,\)"),
        ({"shape": [1 << 60, 1 << 60], "data": [1]}, "input 'x': the shape is"),
        ({"shape": [1 << 40, 1 << 40], "data": [1]}, "has 1208925819614629174706176 elements, and the data have 1"),
        ({"shape": [1 << 40, 0], "data": []}, "no elements and too many rows"),
        ({"shape": [1] * 33, "data": [1]}, "at most 32 dimensions"),
        ({"shape": [1.5], "data": [1]}, r"Expected `int`, got `float` - at `\$.inputs\[0\].shape\[0\]`"),
        (
            {"shape": [1], "data": [1], "datatype": "FLOAT"},
            "input 'x': the datatype is 'FLOAT', not one of BOOL, UINT8",
        ),
        ({"shape": [1]}, "input 'x' has neither a list of data nor binary_data_size"),
        ({"shape": [1], "data": "AAAA"}, "input 'x' has neither a list of data"),
        ({"shape": [1], "data": ["1"]}, r"not FP32 \[1\]: Expected `float`, got `str` - at `\$\[0\]`"),
        ({"shape": [1], "data": [None]}, "got `null`"),
        ({"shape": [1], "data": [True]}, "got `bool`"),
        ({"shape": [1], "data": [1e39]}, r"not FP32: 1e\+39 is too large"),
        ({"shape": [1], "data": [-70000], "datatype": "FP16"}, "not FP16: -70000.0 is too large"),
        ({"shape": [1], "data": [1.5], "datatype": "INT8"}, "Expected `int`, got `float`"),
        ({"shape": [1], "data": [200], "datatype": "INT8"}, "Expected `int` <= 127"),
        ({"shape": [1], "data": [-1], "datatype": "UINT64"}, "Expected `int` >= 0"),
        ({"shape": [1], "data": [1 << 64], "datatype": "UINT64"}, "input 'x': the data are not UINT64"),
        ({"shape": [1], "data": [1], "datatype": "BOOL"}, "Expected `bool`, got `int`"),
        ({"shape": [1], "data": [1], "datatype": "BYTES"}, "Expected `str`, got `int`"),
        ({"shape": [2, 2], "data": [[1, 2], [3]]}, "not every list at depth 1 has the length 2"),
        ({"shape": [2, 2], "data": [[1, 2]]}, "the list has 1 items"),
        ({"shape": [1, 1], "data": [[[1]]]}, "Expected `float`, got `array`"),
        ({"shape": [1], "parameters": {"shared_memory_region": "r"}}, "input 'x' is in shared memory"),
    ],
)
def test_json_tensors_that_are_not_what_they_say_are_refused(tensor: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        read({**FP32, **tensor})


@pytest.mark.parametrize(
    ("datatype", "shape", "size", "binary", "reason"),
    [
        ("FP32", [2], 4, bytes(4), r"input 'x': FP32 \[2\] has 8 bytes, and its binary_data_size is 4"),
        ("FP32", [1 << 40], 4, bytes(4), "has 4398046511104 bytes"),
        ("FP32", [1], 8, bytes(4), "binary_data_size is 8, and the body has 4 bytes left for it"),
        ("FP32", [1], 4, bytes(5), "the body has 1 bytes behind the data of the last input"),
        ("FP32", [1], -4, bytes(4), "binary_data_size is -4, not a number of bytes"),
        ("FP32", [1], "4", bytes(4), "binary_data_size is 4, not a number of bytes"),
        ("FP32", [1], True, bytes(1), "binary_data_size is True, not a number of bytes"),
        (BYTES, [1], 6, b"\x03\0\0\0ab", "input 'x': the data of element 0 are cut off"),
        (BYTES, [1], 2, b"\x03\0", "input 'x': the data of element 0 are cut off"),
        (BYTES, [1 << 50], 4, bytes(4), "has 1125899906842624 texts; at most 4194304 are read"),
        (BYTES, [3], 4, bytes(4), "has 3 elements, and the data have 1$"),
        (BYTES, [1], 8, bytes(8), "has 1 elements, and the data have 1 and more"),
        (BYTES, [0], 4, bytes(4), "has 0 elements, and the data have 0 and more"),
    ],
)
def test_binary_tensors_that_do_not_add_up_are_refused(
    datatype: str, shape: list[int], size: Any, binary: bytes, reason: str
) -> None:
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}

    with pytest.raises(BadRequest, match=reason):
        read(tensor, binary=binary)


@pytest.mark.parametrize(
    ("body", "head_bytes", "reason"),
    [
        (b"", None, "the request does not follow the Open Inference Protocol"),
        (b"{}", None, "required field `inputs`"),
        (b'{"inputs": []}', None, "the request has no inputs"),
        (b'{"inputs": [{"name": "x"}]}', None, "required field `shape`"),
        (b'{"inputs": {}}', None, "Expected `array`, got `object`"),
        (b'{"inputs": [NaN]}', None, "malformed"),
        (b'{"inputs": [{"name": "%b"}]}' % (b"x" * 2000), None, "length <= 1024"),
        (b'{"inputs": ["\xff"]}', None, "Open Inference Protocol"),
        (b"[" * 100_000, None, "Open Inference Protocol"),
        (b'{"inputs": [], "x": ' + b"[" * 100_000, None, "Open Inference Protocol"),
        (b'{"inputs": [], "callback": "https://a"}', None, "callback is not read from the body: .* header Callback"),
        (b'{"inputs": [], "parameters": {"callback": "https://a"}}', None, "callback is not read from the body"),
        (b"{}", "3", "Inference-Header-Content-Length is 3, and the body has 2 bytes"),
        (b"{}", "0", "Inference-Header-Content-Length is 0"),
        (b"{}", "-1", "Inference-Header-Content-Length is '-1', not a number of bytes"),
        (b"{}", "9" * 5000, "not a number of bytes"),
        (b"{}", "\u0663", "not a number of bytes"),
    ],
)
def test_bodies_that_are_no_requests_are_refused(body: bytes, head_bytes: str | None, reason: str) -> None:
    def read_all() -> None:
        request, parts = decode_request(body, head_bytes)
        read_tensors(request.inputs, parts)

    with pytest.raises(BadRequest, match=reason):
        read_all()


def test_two_inputs_of_one_name_are_refused() -> None:
    with pytest.raises(BadRequest, match="two inputs of one name"):
        read({**FP32, "shape": [1], "data": [1]}, {**FP32, "shape": [1], "data": [1]})


def test_binary_and_json_data_of_one_input_are_refused() -> None:
    with pytest.raises(BadRequest, match="only one of the two"):
        read({**FP32, "shape": [1], "data": [1], "parameters": {"binary_data_size": 4}}, binary=bytes(4))


def test_what_is_asked_for_is_read() -> None:
    outputs = [
        {"name": "a"},
        {"name": "b", "parameters": {"binary_data": False}},
        {"name": "c", "parameters": {"classification": 3}},
    ]

    found = asked(
        id="me", outputs=outputs, parameters={"binary_data_output": True, "timeout": 1_500_000, "priority": 1}
    )

    assert found == Asked("me", (Wanted("a", True), Wanted("b", False), Wanted("c", True, 3)), True, 1.5)
    assert asked(id=None, outputs=None, parameters=None) == Asked("", (), False, None)
    assert asked(parameters={"timeout": 0}).timeout_s is None


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ({"parameters": {"timeout": -1}}, "timeout is -1, not a whole number of microseconds"),
        ({"parameters": {"timeout": 1 << 60}}, "not a whole number of microseconds"),
        ({"parameters": {"timeout": "1"}}, "not a whole number of microseconds"),
        ({"parameters": {"binary_data_output": 1}}, "the request: the parameter binary_data_output is 1"),
        ({"outputs": [{"name": "y", "parameters": {"binary_data": "yes"}}]}, "output 'y': .* binary_data is yes"),
        ({"outputs": [{"name": "y", "parameters": {"classification": 1.5}}]}, "output 'y': .* classification is 1.5"),
        ({"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]}, "output 'y' is in shared memory"),
        ({"outputs": [{"name": "y"}, {"name": "y"}]}, "an output twice"),
    ],
)
def test_parameters_that_are_not_what_they_should_be_are_refused(rest: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        asked(**rest)


def test_no_damage_to_a_body_raises_anything_else() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    tensors: list[dict[str, Any]] = [
        {"name": "t", "datatype": BYTES, "shape": [2], "parameters": {"binary_data_size": 11}},
        {**FP32, "shape": [1, 2], "parameters": {"binary_data_size": 8}},
        {"name": "i", "datatype": "INT64", "shape": [2, 1], "data": [[1], [-5]]},
    ]
    body, head_bytes = body_of(*tensors, binary=b"\x01\0\0\0a\x02\0\0\0bc" + bytes(8), parameters={"timeout": 5})
    tokens = [b"[", b"]", b"{", b"null", b"1e400", b"-", b"9" * 30, b'"', b"\\ud800", b"\xff", b"true", b"0"]

    for _ in range(3000):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged))
            damaged[at : at + chance.randint(0, 3)] = chance.choice([*tokens, bytes([chance.randrange(256)])])
        try:
            request, parts = decode_request(bytes(damaged), chance.choice([head_bytes, None, str(len(damaged))]))
            read_tensors(request.inputs, parts)
            Asked.of(request)
        except BadRequest:
            pass
