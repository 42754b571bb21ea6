"""Layout of inputs in a slot."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_serving.node.ring.input_layout import Layout, Signature, decode_layout, encode_layout, plan

QUICK = settings(derandomize=True, max_examples=200)
SHAPES = st.lists(st.integers(0, 9), max_size=4).map(tuple)
DTYPES = st.sampled_from(["|u1", "<f2", "<f4", "<i8", "|b1"])
TENSORS = st.tuples(st.just("tensor"), DTYPES, SHAPES)
CONTENTS = st.tuples(st.sampled_from(["image", "string"]), st.just(""), st.just(()))
SIGNATURES = st.lists(st.one_of(TENSORS, CONTENTS), min_size=1, max_size=6).map(tuple)


def row_bytes(signature: Signature) -> int:
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for kind, dtype, shape in signature if kind == "tensor")


@QUICK
@given(SIGNATURES, st.integers(1, 64), st.integers(1, 1 << 16))
def test_inputs_fit_are_aligned_and_do_not_overlap(signature: Signature, batch: int, slot_bytes: int) -> None:
    layout = plan(signature, batch, slot_bytes)

    assert 0 <= layout.capacity <= batch
    assert [(place.kind, place.dtype, place.row_shape) for place in layout.inputs] == list(signature)
    end = 0
    for place in layout.inputs:
        assert place.offset % 64 == 0
        assert place.offset >= end
        end = place.offset + layout.capacity * place.row_bytes
    assert end <= layout.heap
    if layout.capacity:
        assert layout.heap <= slot_bytes


@QUICK
@given(SIGNATURES, st.integers(1, 64), st.integers(1, 1 << 16))
def test_as_many_rows_as_fit(signature: Signature, batch: int, slot_bytes: int) -> None:
    layout = plan(signature, batch, slot_bytes)

    room = slot_bytes // 2 if layout.has_heap else slot_bytes
    if layout.capacity < batch:
        one_more = (layout.capacity + 1) * max(row_bytes(signature), 1)
        assert one_more + 64 * len(signature) > room, "another row would have fitted"


@QUICK
@given(SIGNATURES, st.integers(1, 64), st.integers(1, 1 << 16))
def test_contents_of_variable_length_get_half_of_the_slot(signature: Signature, batch: int, slot_bytes: int) -> None:
    layout = plan(signature, batch, slot_bytes)

    assert layout.has_heap == any(kind != "tensor" for kind, _, _ in signature)
    if layout.has_heap:
        assert layout.heap <= slot_bytes // 2


@QUICK
@given(SIGNATURES, st.integers(1, 64), st.integers(1, 1 << 16))
def test_a_layout_travels(signature: Signature, batch: int, slot_bytes: int) -> None:
    layout = plan(signature, batch, slot_bytes)

    assert decode_layout(encode_layout(layout)) == layout


@pytest.mark.parametrize(
    ("signature", "slot_bytes", "capacity"),
    [
        ((("tensor", "<f4", (10,)),), 64 + 400, 10),
        ((("tensor", "<f4", (10,)),), 64 + 399, 9),
        ((("tensor", "<f4", (10,)),), 64 + 40, 1),
        ((("tensor", "<f4", (10,)),), 64 + 39, 0),
        ((("tensor", "<f4", (10,)),), 1, 0),
        ((("tensor", "<f4", ()),), 4096, 32),
        ((("tensor", "<f4", (0, 5)),), 4096, 32),
        ((("tensor", "<f4", (2**40, 2**40)),), 4096, 0),
        ((("image", "", ()),), 4096, 32),
        ((("image", "", ()), ("tensor", "<f4", (100,))), 4096, 4),
        ((), 4096, 32),
    ],
)
def test_capacity(signature: Signature, slot_bytes: int, capacity: int) -> None:
    assert plan(signature, 32, slot_bytes).capacity == capacity


def test_two_tensors_lie_one_behind_the_other() -> None:
    layout = plan((("tensor", "<f4", (3,)), ("tensor", "|u1", (5,))), 4, 4096)

    assert [(place.offset, place.row_bytes) for place in layout.inputs] == [(0, 12), (64, 5)]
    assert layout.heap == 128


def test_refused_records_alone_have_an_empty_layout() -> None:
    assert plan((), 8, 4096) == Layout(8, 0, [])
