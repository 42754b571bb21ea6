"""Binding of names to inputs: by name, by order where no name is like the model's, and else not at all."""

import string
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cluster_serving.client.errors import CodecError
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.binding import bind, like
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.values import encode_record
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.job import Job
from cluster_serving.frontend.values.instances import encode_instance
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from support.heartbeats import described


def inputs(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, "float32", (None,)) for name in names)


def refusal(names: Sequence[str], *known: str) -> str:
    with pytest.raises(CodecError) as caught:
        bind(names, inputs(*known))
    return str(caught.value)


@pytest.mark.parametrize(
    ("names", "known", "places", "by_order"),
    [
        (["x"], ["x"], [0], False),
        (["X"], ["x"], [0], False),  # a single value cannot be exchanged with another
        (["t"], ["image"], [0], False),
        (["anything"], [], [0], False),
        (["b", "a"], ["a", "b"], [1, 0], False),
        (["t1", "t0"], ["t0", "t1"], [1, 0], False),
        (["b", "a"], [], [0, 1], True),
        (["t0", "t1"], ["a", "b"], [0, 1], True),
        (["t0", "t1"], ["x0", "x1"], [0, 1], True),  # one letter off, but the original's names
        (["t", "t1"], ["x", "y"], [0, 1], True),
        ([f"t{n}" for n in range(11)], [f"x{n}" for n in range(11)], list(range(11)), True),
        (["p", "q"], ["a", "b"], [0, 1], True),  # a single letter that is replaced has nothing in common
        (["first", "second"], ["image", "label"], [0, 1], True),
        (["_", "-"], ["+", "?"], [0, 1], True),
    ],
)
def test_names_that_bind(names: list[str], known: list[str], places: list[int], by_order: bool) -> None:
    found = bind(names, inputs(*known))

    assert (list(found.places), found.by_order) == (places, by_order)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("Image", "image"),
        ("input_ids", "inputIds"),
        ("input-ids", "input.ids"),
        ("x:0", "x"),
        ("x", "x:0"),
        ("serving_default_x", "x"),
        ("x", "model/x"),
        ("imag", "image"),
        ("images", "image"),
        ("input", "input_ids"),
        ("lable", "label"),
        ("labl", "label"),
        ("lbbel", "label"),
        ("x1", "x2"),
        ("ÄPFEL", "äpfel"),
    ],
)
def test_names_that_are_alike(name: str, other: str) -> None:
    assert like(name, ("unlike", other)) == other
    assert f"{name!r} is none of these, and the nearest is {other!r}" in refusal([name, "q"], other, "unlike")


@pytest.mark.parametrize(
    ("name", "other"), [("a", "b"), ("", "x"), ("x", ""), ("data", "a"), ("left", "right"), ("ab", "cd")]
)
def test_names_that_are_not_alike(name: str, other: str) -> None:
    assert like(name, (other,)) is None


@pytest.mark.parametrize("names", [["t1", "t0"], ["t0", "t1", "t10", "t2"], ["t0", "t"]])
def test_numbered_names_come_in_their_order(names: list[str]) -> None:
    assert refusal(names, *"abcd"[: len(names)]).endswith(
        "names such as t0, t1, ... stand for the order, and must stand in order"
    )


@pytest.mark.parametrize("known", [["T1", "T0"], ["t_1", "t_0"], ["t", "x"], ["t1", "t2"]])
def test_numbered_names_are_no_order_where_the_model_has_such_names(known: list[str]) -> None:
    assert "and the nearest is" in refusal(["t0", "t1"], *known)


def test_a_message_has_no_more_than_a_reader_can_take_in() -> None:
    message = refusal(["x" * 1000, *map(str, range(1000))], *(f"input {n}" for n in range(1000)))

    assert len(message) < 1000
    assert message.count("and 98") == 2


def test_many_names_are_compared_quickly() -> None:
    """A model may have hundreds of inputs, and a client may send other names each time."""
    specs = inputs(*(f"feature_{n * 7919:08x}_of_the_model" for n in range(500)))
    begun_s = time.process_time()

    for at in range(10):
        assert bind([f"qq{at}pp{n * 31337:08x}ww" for n in range(500)], specs).by_order

    assert time.process_time() - begun_s < 10 * 0.5


# --- One property for every way in: each value reaches the input it is named for, or an error or the flag is there. ---

WORDS = st.sampled_from(
    ["x", "y", "a", "b", "t0", "T1", "image", "label", "input_ids", "attention_mask", "x1", "x2", "Input:0"]
)
NAMES = st.text(string.ascii_letters + string.digits + "_:/", min_size=1, max_size=8)
MODELS = st.lists(st.one_of(WORDS, NAMES), min_size=2, max_size=4, unique=True)
SLIPS: dict[str, Callable[[str], str]] = {
    "same": lambda name: name,
    "upper": str.upper,
    "swapped": str.swapcase,
    "suffix": lambda name: name + ":0",
    "underscore": lambda name: name + "_",
    "between": lambda name: name[:1] + "_" + name[1:],
    "prefix": lambda name: "serving_default_" + name,
    "longer": lambda name: name + "s",
    "shorter": lambda name: name[:-1] or name,
    "replaced": lambda name: name[:-1] + "#" if len(name) > 1 else name,
}


@st.composite
def near_misses(draw: st.DrawFn) -> tuple[list[str], dict[str, str]]:
    """The model's names, and for each name in a record, in any order, the name that was meant."""
    known = draw(MODELS)
    meant = {SLIPS[draw(st.sampled_from(list(SLIPS)))](name): name for name in draw(st.permutations(known))}
    assume(len(meant) == len(known))
    return known, meant


QUICK = settings(derandomize=True, max_examples=500, deadline=None)


@QUICK
@given(near_misses())
def test_no_near_miss_is_bound_to_another_input(case: tuple[list[str], dict[str, str]]) -> None:
    known, meant = case
    values = {name: float(known.index(of)) for name, of in meant.items()}
    right = [float(place) for place in range(len(known))]

    for way in (native, original, http):
        record = way(values, inputs(*known))

        if record is not None:
            assert not record.flags & ~(1 | 2), "no near miss is a case for the order"
            found = [np.frombuffer(content, np.float32).item() for content in record.contents]
            assert found == right


def native(values: dict[str, float], specs: tuple[TensorSpec, ...]) -> Record | None:
    return answered(encode_record("u", {name: np.float32(value) for name, value in values.items()}), specs)


def original(values: dict[str, float], specs: tuple[TensorSpec, ...]) -> Record | None:
    return answered([b"uri", b"u", b"data", encode_original(values).encode()], specs)


def http(values: dict[str, Any], specs: tuple[TensorSpec, ...]) -> Record | None:
    try:
        fields = encode_instance(values, Job("job", (described(inputs=specs),)))
    except BadRequest:
        return None
    return answered([b"uri", b"u", *fields], specs)


def answered(fields: list[bytes], specs: tuple[TensorSpec, ...]) -> Record | None:
    record = RecordDecoder(specs, b"").decode(b"1-1", fields, 0)
    return None if record.error else record


@QUICK
@given(MODELS, st.lists(st.one_of(WORDS, NAMES), min_size=1, max_size=4, unique=True))
def test_any_names_are_bound_by_name_or_by_order_or_refused(known: list[str], names: list[str]) -> None:
    specs = inputs(*known)
    try:
        places, by_order = bind(names, specs)
    except CodecError:
        assert set(names) != set(known)
        return
    assert sorted(places) == list(range(len(known)))
    if by_order:
        assert list(places) == sorted(places)
        assert set(names).isdisjoint(known)
        assert {name.casefold() for name in names}.isdisjoint(name.casefold() for name in known)
    else:
        assert [names[place] for place in places] == known
