"""Form of tensors on the wire: never larger, never other values, never to a node that does not read it."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cluster_serving.client import AsyncInputQueue, InputQueue, InvalidValue, keys
from cluster_serving.client.protocol.payload import Payload, narrowed
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.tensors import decode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.reader.decoding import RecordDecoder
from support.heartbeats import described
from support.stored import stored

JOB = "job"
X = TensorSpec("x", "float32", (None, 64, 64))
Y = TensorSpec("y", "float16", (None, 64, 64))
ZEROS = np.zeros((64, 64), np.float32)
NOISE = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
PIXELS = np.random.default_rng(0).integers(0, 256, (64, 64)).astype(np.float32)
PLAIN = (keys.TENSOR + b"x", "float32")
COMPRESSED = (keys.COMPRESSED + b"x", "")


def node(*inputs: TensorSpec, **fields: Any) -> Heartbeat:
    return described(job=JOB, inputs=inputs, **{"codecs": ("lz4", "zstd")} | fields)


def knowing(*nodes: Heartbeat, codec: Any = "lz4", probe_s: float = 10.0) -> Payload:
    """A payload that has asked for these nodes, over a way on which a probe of 512 KiB takes some seconds."""
    payload = Payload(JOB, codec)
    ask(payload, nodes, probe_s)
    return payload


def ask(payload: Payload, nodes: Sequence[Heartbeat], probe_s: float = 10.0, now_s: float = 0.0) -> None:
    """Answer the questions as Redis would."""
    replies: dict[str, Any] = {
        "ZRANGE": [b"cluster-serving.node_other:m", *(keys.node_key(JOB, each.node).encode() for each in nodes)],
        "MGET": [*(each.encode() for each in nodes), None],
    }
    clock_s = 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.perf_counter", lambda: clock_s)
        questions = payload.questions(now_s)
        command = next(questions)
        with suppress(StopIteration):
            while True:
                name, *rest = command
                clock_s += probe_s if name == "PING" and rest != [""] else 0.0
                command = questions.send(replies.get(str(name)))


def form(payload: Payload, array: NDArray[Any], name: str = "x") -> tuple[bytes, str]:
    """The field in which an array is sent, and its dtype where it is plain."""
    _, _, field, content = payload.packed(encode_record("u", {name: array}))
    return field, str(decode_tensor(content).dtype) if field.startswith(keys.TENSOR) else ""


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_tensor_that_shrinks_is_compressed_on_a_slow_way(codec: str) -> None:
    assert form(knowing(node(X), codec=codec), ZEROS - 1) == COMPRESSED


def test_nothing_is_compressed_on_a_way_that_takes_no_time() -> None:
    assert form(knowing(node(X), probe_s=0), ZEROS - 1) == PLAIN


def test_a_tensor_that_does_not_shrink_is_sent_as_it_is() -> None:
    payload = knowing(node(X))
    fields = encode_record("u", {"x": NOISE, "text": {"string": "y" * 5000}, "few": np.zeros(9)})

    assert payload.packed(fields) == fields


def test_no_tensor_becomes_larger_although_samples_pay() -> None:
    payload = knowing(node(X))

    assert form(payload, ZEROS - 1) == COMPRESSED
    assert form(payload, NOISE) == PLAIN


def test_a_sample_is_taken_again_after_512_tensors() -> None:
    payload = knowing(node(X))
    forms = [form(payload, NOISE if number == 0 else ZEROS - 1)[0] for number in range(514)]

    assert set(forms[:512]) == {PLAIN[0]}
    assert forms[512:] == [COMPRESSED[0]] * 2


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [node(X, codecs=())],
        [node(X), node(X, node="old", codecs=())],
        [node(X), node(X, node="newer", codecs=("zstd", "br"))],
    ],
)
def test_nothing_is_compressed_unless_all_nodes_read_it(nodes: list[Heartbeat]) -> None:
    assert form(knowing(*nodes), ZEROS - 1) == PLAIN


def test_an_old_node_that_comes_later_is_noticed_within_a_second() -> None:
    payload = knowing(node(X))
    assert form(payload, ZEROS - 1) == COMPRESSED
    assert not payload.is_due(0.9)
    assert payload.is_due(1.1)

    ask(payload, [node(X), node(X, node="old", state="starting", codecs=())], now_s=1.1)

    assert form(payload, ZEROS - 1) == PLAIN


def test_after_questions_that_break_off_no_node_is_known() -> None:
    payload = knowing(node(X))
    questions = payload.questions(2.0)
    next(questions)
    questions.close()

    assert form(payload, PIXELS) == PLAIN
    assert not payload.is_due(2.9)


def test_a_heartbeat_that_cannot_be_read_leaves_tensors_as_they_are() -> None:
    payload = Payload(JOB, "lz4")
    questions = payload.questions(0.0)
    assert next(questions)[0] == "ZRANGE"
    assert questions.send([keys.node_key(JOB, "n").encode()]) == ("MGET", keys.node_key(JOB, "n").encode())

    questions.send([b'{"job": "job", "node": "n"}'])
    questions.close()

    assert form(payload, PIXELS) == PLAIN


@pytest.mark.parametrize(
    ("spec", "array", "dtype"),
    [
        (X, PIXELS, "uint8"),
        (X, PIXELS.astype(np.float64), "uint8"),
        (X, PIXELS.astype(np.int64), "uint8"),
        (X, NOISE.astype(np.float64), "float32"),
        (X, NOISE, "float32"),
        (X, PIXELS - 1, "float32"),
        (X, ZEROS - 0.0, "uint8"),
        (X, -ZEROS, "float32"),
        (X, np.full((64, 64), np.nan, np.float32), "float32"),
        (X, np.where(PIXELS < 256, PIXELS, 1.0) + np.eye(64, k=63, dtype=np.float32) / 2, "float32"),
        (Y, NOISE, "float16"),
        (Y, np.full((64, 64), 1e9, np.float32), "float32"),
        (TensorSpec("x", "int32", (None, None, None)), PIXELS.astype(np.int64) + 300, "int32"),
        (TensorSpec("x", "int32", (None, None, None)), np.full((64, 64), 1 << 40), "int64"),
        (TensorSpec("x", "str", (None, None, None)), PIXELS, "float32"),
    ],
)
def test_a_tensor_is_sent_in_the_fewest_bytes_that_hold_its_values(
    spec: TensorSpec, array: NDArray[Any], dtype: str
) -> None:
    assert form(knowing(node(spec), probe_s=0), array) == (keys.TENSOR + b"x", dtype)


@pytest.mark.parametrize(
    "nodes", [[node(X, raw=True)], [node(X), node(Y, node="other")], [node(X), node(node="starting")], [node()]]
)
def test_values_keep_their_dtype_unless_all_nodes_take_the_same(nodes: list[Heartbeat]) -> None:
    assert form(knowing(*nodes, probe_s=0), PIXELS) == PLAIN


def test_inputs_are_told_by_name_unless_there_is_one() -> None:
    payload = knowing(node(X, Y), probe_s=0)

    assert form(payload, NOISE, "y") == (keys.TENSOR + b"y", "float16")
    assert form(payload, NOISE, "z") == (keys.TENSOR + b"z", "float32")
    assert form(knowing(node(Y), probe_s=0), NOISE, "z") == (keys.TENSOR + b"z", "float16")


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["float16", "float32", "float64", "int8", "int32", "int64", "uint8"]),
    hnp.arrays(
        st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]),
        (3, 2),
        elements={"min_value": 0, "max_value": 127},
    )
    | hnp.arrays(st.sampled_from(["i8", "u4", "f2", "f4", "f8"]), (3, 2)),
)
def test_a_node_gets_the_same_row_of_the_narrow_tensor(dtype: str, array: NDArray[Any]) -> None:
    spec = TensorSpec("x", dtype, (None, 3, 2))

    def row(values: NDArray[Any]) -> Any:
        return stored(RecordDecoder((spec,), b"reply").decode(b"5-1", encode_record("u", {"x": values}), 0))

    narrow = narrowed(array, spec)

    assert narrow.nbytes <= array.nbytes
    assert row(narrow) == row(array)


def test_a_refusal_is_told_once_at_the_line_of_the_program() -> None:
    payload = Payload(JOB, "lz4")

    with pytest.warns(RuntimeWarning, match="compress needs the right to read the heartbeats") as told:
        payload.refused(RedisRefused("NOPERM"))
    assert [each.filename for each in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload.refused(RedisRefused("NOPERM"))


@pytest.mark.parametrize("queue", [InputQueue, AsyncInputQueue])
def test_settings_are_checked(queue: Any) -> None:
    with pytest.raises(InvalidValue, match="compress is 'lz4' or 'zstd', not 'gzip'"):
        queue(compress="gzip")
    with pytest.raises(InvalidValue, match="compress needs the native dialect"):
        queue(compress="lz4", dialect="original")
