"""Entries that are decoded together: the same as one by one, or not at all."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.reader.columns import Columns
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from cluster_serving.node.ring.slot import BY_ORDER

PREFIX = b"cluster-serving.reply_job:"
X = TensorSpec("x", "float32", (None, None))
Y = TensorSpec("y", "int64", (None,))
Fields = list[bytes]


def entry(number: int, values: int = 2, *more: bytes) -> Fields:
    data = {"x": np.full(values, number, np.float32), "y": np.int64(number)}
    return [*encode_record(f"u{number}", data), *more]


def met(*known: Fields) -> RecordDecoder:
    """A decoder that has met entries like these."""
    decoder = RecordDecoder((X, Y), PREFIX)
    for fields in known:
        decoder.decode(b"1-0", fields, 0)
    return decoder


def ids(entries: Sequence[Fields]) -> list[bytes]:
    return [b"%d-%d" % (5 + number, number) for number in range(len(entries))]


def one_by_one(decoder: RecordDecoder, entries: Sequence[Fields], now_ms: float) -> list[Record]:
    return [decoder.decode(entry_id, fields, now_ms) for entry_id, fields in zip(ids(entries), entries, strict=True)]


def records_of(alike: Columns) -> list[Record]:
    uris, replies, signature, contents, deadlines_ms, traceparents, flags = alike
    columns = zip(uris, replies, zip(*contents, strict=True), deadlines_ms, traceparents, strict=True)
    return [
        Record(uri, reply, flags, signature, list(row), None, deadline_ms, traceparent)
        for uri, reply, row, deadline_ms, traceparent in columns
    ]


@pytest.mark.parametrize(
    "more", [(), (b"reply", PREFIX + b"c"), (b"deadline", b"1000", b"traceparent", b"00-a"), (b"deadline", b"+495")]
)
def test_entries_of_one_form_are_what_they_are_one_by_one(more: tuple[bytes, ...]) -> None:
    entries = [entry(number, 2, *more) for number in range(5)]
    decoder = met(entries[0])

    alike = decoder.decode_alike(ids(entries), entries, 500)

    assert alike is not None
    assert records_of(alike) == one_by_one(decoder, entries, 500)


def test_entries_bound_by_order_are_what_they_are_one_by_one() -> None:
    entries = [
        encode_record(f"u{number}", {"t0": np.full(2, number, np.float32), "t1": np.int64(number)})
        for number in range(3)
    ]
    decoder = met(entries[0])

    alike = decoder.decode_alike(ids(entries), entries, 0)

    assert alike is not None
    assert alike.flags == BY_ORDER
    assert records_of(alike) == one_by_one(decoder, entries, 0)


def test_their_data_are_not_copied() -> None:
    entries = [entry(number) for number in range(3)]

    alike = met(entries[0]).decode_alike(ids(entries), entries, 0)

    assert alike is not None
    for content, fields in zip(alike.contents[0], entries, strict=True):
        assert np.shares_memory(np.frombuffer(content, np.uint8), np.frombuffer(fields[3], np.uint8))


def test_a_form_that_was_not_met_is_left_to_be_met() -> None:
    assert met().decode_alike([b"5-0"], [entry(1)], 0) is None
    assert met(entry(1, values=2)).decode_alike([b"5-0"], [entry(1, values=3)], 0) is None


def changed(at: int, to: bytes) -> Callable[[], list[Fields]]:
    def entries() -> list[Fields]:
        found = [entry(number, 2, b"reply", PREFIX + b"c", b"deadline", b"1000") for number in range(4)]
        found[2][at] = to
        return found

    return entries


@pytest.mark.parametrize(
    "entries",
    [
        changed(0, b"URI"),
        changed(1, b""),
        changed(1, b"x" * 4097),
        changed(1, "ü".encode()),
        changed(3, b""),
        changed(3, encode_tensor(np.zeros(3, np.float32))),
        changed(3, encode_tensor(np.zeros(2, np.float64))),
        changed(3, encode_tensor(np.zeros(2, np.float32))[:-1]),
        changed(5, encode_tensor(np.zeros((), np.float32))),
        changed(7, b"another key"),
        changed(9, b"499"),
        changed(9, b"+492"),
        changed(9, b"soon"),
        changed(9, b"1" * 18),
        lambda: [entry(1), entry(2, 2, b"reply", PREFIX + b"c")],
        lambda: [entry(1), encode_record("u", {"x": np.zeros(2, np.float32)})],
    ],
)
def test_one_that_differs_has_all_decoded_one_by_one(entries: Callable[[], list[Fields]]) -> None:
    given = entries()
    decoder = met(*given)

    assert decoder.decode_alike(ids(given), given, 500) is None
    assert decoder.decode_alike([b"5-0"] * 2, given[:1] * 2, 500) is not None, "they would be alike without it"


PIECES = st.sampled_from(
    [
        *(
            b"uri",
            b"reply",
            b"deadline",
            b"tensor:x",
            b"tensor:y",
            b"data",
            b"traceparent",
            b"",
            b"u",
            b"\xff",
            b"500",
            b"+493",
            b"1e3",
        ),
        *(PREFIX + b"c", encode_tensor(np.zeros(2, np.float32)), encode_tensor(np.array(3, np.int64)), b"x" * 5000),
    ]
)


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 11), PIECES), max_size=4))
def test_whatever_comes_is_the_same_one_by_one_or_refused(changes: list[tuple[int, int, bytes]]) -> None:
    more = (b"reply", PREFIX + b"c", b"deadline", b"1000", b"traceparent", b"00-a")
    entries = [entry(number, 2, *more) for number in range(3)]
    for number, at, piece in changes:
        entries[number][at] = piece
    decoder = met(*entries)

    alike = decoder.decode_alike(ids(entries), entries, 500)

    assert alike is None or records_of(alike) == one_by_one(decoder, entries, 500)
