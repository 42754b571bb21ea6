"""Any bytes are a value or a refusal, for both codecs: what `make fuzz` has found, and damaged messages."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cluster_serving.client.wire.original.decode import decode_record as decode_original
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.original.result import decode_result as decode_original_result
from cluster_serving.client.wire.original.result import encode_result as encode_original_result
from cluster_serving.client.wire.original.values import DenseTensor
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.client.wire.values import encode_record
from fuzz.seeds import CORPUS, inputs
from fuzz.targets import SEPARATOR, TARGETS

pytestmark = pytest.mark.no_cover

QUICK = settings(derandomize=True, max_examples=150, database=None)
SEEDS: dict[str, list[bytes]] = {name: [] for name in TARGETS}
for target, content in inputs():
    SEEDS[target].append(content)

NUMBERS = st.one_of(
    st.integers(0, (1 << 64) - 1),
    st.sampled_from([0, 1, 2, 1 << 7, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1]),
)


@st.composite
def damaged(draw: st.DrawFn, target: str) -> bytes:
    """A good input with a few numbers written over it, cut, or continued with another one."""
    content = bytearray(draw(st.sampled_from(SEEDS[target])))
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.sampled_from([1, 2, 4, 8]))
        at = draw(st.integers(0, len(content)))
        match draw(st.sampled_from(["number", "cut", "insert", "splice"])):
            case "number":
                content[at : at + width] = (draw(NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
            case "cut":
                del content[at : at + draw(st.integers(1, 64))]
            case "insert":
                content[at:at] = draw(st.sampled_from([SEPARATOR, b"[", b'{"', b"\xff\xff\xff\xff", b"9" * 30]))
            case _:
                other = draw(st.sampled_from(SEEDS[target]))
                content[at:] = other[draw(st.integers(0, len(other))) :]
    return bytes(content)


def files(target: str) -> list[Path]:
    return sorted((CORPUS / target).iterdir())


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus(name: str) -> None:
    kept = files(name)

    assert kept
    for file in kept:
        TARGETS[name](file.read_bytes())


def test_the_corpus_is_small() -> None:
    sizes = [file.stat().st_size for name in TARGETS for file in files(name)]

    assert sum(sizes) < 300_000
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs(name: str) -> None:
    @QUICK
    @given(damaged(name))
    def check(content: bytes) -> None:
        TARGETS[name](content)

    check()


@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes(name: str) -> None:
    @QUICK
    @given(st.binary(max_size=300))
    def check(content: bytes) -> None:
        TARGETS[name](content)

    check()


ARRAYS = hnp.arrays(
    st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]),
    hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
)


def field(fields: list[bytes], name: bytes) -> bytes:
    return dict(zip(fields[::2], fields[1::2], strict=True))[name]


@QUICK
@given(st.dictionaries(st.text(min_size=1, max_size=9), ARRAYS, min_size=1, max_size=4))
def test_arrays_come_back_from_a_native_record(values: dict[str, NDArray[Any]]) -> None:
    fields = encode_record("u", values)

    for name, array in values.items():
        found = decode_tensor(field(fields, b"tensor:" + name.encode()))

        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def _floats(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


@QUICK
@given(st.dictionaries(st.text(min_size=1, max_size=9), ARRAYS, min_size=1, max_size=4))
def test_arrays_come_back_from_an_original_record(values: dict[str, NDArray[Any]]) -> None:
    columns = decode_original(encode_original(values))

    assert [name for name, _ in columns] == [*values]
    for (_, value), array in zip(columns, values.values(), strict=True):
        assert isinstance(value, DenseTensor)
        assert value.array.tobytes() == _floats(array).tobytes()
        assert value.array.shape == array.shape


@QUICK
@given(st.lists(ARRAYS.filter(lambda array: array.size >= max(array.ndim, 1)), min_size=1, max_size=3))
def test_arrays_come_back_from_an_original_result(outputs: list[NDArray[Any]]) -> None:
    found: Any = cast(Any, decode_original_result(encode_original_result(outputs)))

    for got, array in zip(found if len(outputs) > 1 else [found], outputs, strict=True):
        assert got.tobytes() == _floats(array).tobytes()
