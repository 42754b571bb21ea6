"""Records on their way into the slots of a ring."""

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.processing.model_input import model_input
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.batcher import Batcher, is_due
from cluster_serving.node.reader.columns import Columns
from cluster_serving.node.reader.decoding import Record, RecordDecoder
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, array_at

GEOMETRY = Geometry(slots=3, batch=4, slot_bytes=4096, workers=1)
X = TensorSpec("x", "float32", (None, None))


@pytest.fixture
def ring() -> Generator[Ring]:
    ring = Ring(GEOMETRY)
    yield ring
    ring.close()


def replies(count: int, values: int = 3) -> tuple[list[bytes], list[list[bytes]]]:
    """Ids and fields of so many entries, as they come from Redis."""
    rows = [np.full(values, number, np.float32) for number in range(count)]
    return [b"1-%d" % number for number in range(count)], [encode_record("u", {"x": row}) for row in rows]


def decoded(entries: list[list[bytes]]) -> Columns:
    decoder = RecordDecoder((X,), b"reply")
    decoder.decode(b"0-1", entries[0], 0)
    alike = decoder.decode_alike([b"1-0"] * len(entries), entries, 0)
    assert alike is not None
    return alike


def test_records_that_are_alike_go_on_in_the_next_slot(ring: Ring) -> None:
    ids, entries = replies(10)
    batcher = Batcher(ring)

    assert batcher.place_alike(ids, decoded(entries), 0, 0, [1] * 10) == 10

    batches = [batcher.pop_due(0, 0, 0) for _ in range(3)]
    assert [batch.ids for batch in batches if batch] == [ids[:4], ids[4:8], ids[8:]]
    assert not batcher


@pytest.mark.parametrize("dtype", ["u1", "i1", "f2", "i2"])
def test_values_of_another_dtype_become_the_models_in_the_slot(ring: Ring, dtype: str) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]).astype(dtype)
    entries = [encode_record("u", {"x": row}) for row in (values[0].astype(np.float32), *values)]
    decoder = RecordDecoder((X,), b"reply")
    batcher = Batcher(ring)

    assert all(
        batcher.place(b"1-%d" % number, decoder.decode(b"1-0", entry, 0), 0) for number, entry in enumerate(entries[:2])
    )
    alike = decoder.decode_alike([b"1-2", b"1-3"], entries[2:], 0)
    assert alike is not None
    assert batcher.place_alike([b"1-2", b"1-3"], alike, 0, 0, [1, 1]) == 2

    batch = batcher.pop_due(0, 0, 0)
    assert batch is not None
    slot = ring.slots[batch.index]
    found = array_at(slot.inputs, "<f4", (4, 3), 0)
    assert found.tolist() == [values[0].tolist(), *values.tolist()]


def test_values_of_another_dtype_lie_beside_an_image(ring: Ring) -> None:
    image = TensorSpec("image", "uint8", (None, 2, 2, 3))
    fields = encode_record("u", {"x": np.array([2, 3], np.uint8), "image": b"\xff\xd8 file"})
    record = RecordDecoder((X, image), b"reply").decode(b"1-0", fields, 0)
    batcher = Batcher(ring)

    assert batcher.place(b"1-0", record, 0)

    batch = batcher.pop_due(0, 0, 0)
    assert batch is not None
    slot = ring.slots[batch.index]
    [(start, length)] = next(iter(slot.table())).spans
    assert array_at(slot.inputs, "<f4", (2,), 0).tolist() == [2, 3]
    assert bytes(slot.inputs[start : start + length]) == b"\xff\xd8 file"


@pytest.mark.parametrize(
    "array", [np.array([1, 2], ">f4"), np.array([9, 1, 9, 2], np.int8)[1::2], np.array([[1, 2]], "u1")]
)
def test_arrays_of_the_original_dialect_become_the_models_in_the_slot(ring: Ring, array: NDArray[Any]) -> None:
    value = model_input(X, DecodeOptions()).tensor(array)
    record = Record(b"u", b"", 0, (value.key,), [value.content])
    batcher = Batcher(ring)

    assert batcher.place(b"1-0", record, 0)

    batch = batcher.pop_due(0, 0, 0)
    assert batch is not None
    assert array_at(ring.slots[batch.index].inputs, "<f4", (2,), 0).tolist() == [1, 2]


def test_a_row_without_values_takes_no_room(ring: Ring) -> None:
    decoder = RecordDecoder((X,), b"reply")
    batcher = Batcher(ring)

    for number in range(3):
        record = decoder.decode(b"1-0", encode_record("u", {"x": np.zeros(0, np.uint8)}), 0)
        assert batcher.place(b"1-%d" % number, record, 0)

    batch = batcher.pop_due(0, 0, 0)
    assert batch is not None
    assert len(batch.ids) == 3


def test_those_for_which_there_is_no_slot_are_left(ring: Ring) -> None:
    ids, entries = replies(20)
    batcher = Batcher(ring)

    assert batcher.place_alike(ids, decoded(entries), 0, 0, [1] * 20) == 12
    assert ring.first(State.FREE) is None
    assert batcher.ids == set(ids[:12])


def test_records_larger_than_a_slot_are_left_to_be_refused(ring: Ring) -> None:
    ids, entries = replies(2, values=2000)
    batcher = Batcher(ring)

    assert batcher.place_alike(ids, decoded(entries), 0, 0, [1] * 2) == 0
    assert not batcher
    assert ring.every(State.FREE) == [0, 1, 2]


def test_a_batch_is_as_small_as_the_deadline_of_its_first_record_wants_it(ring: Ring) -> None:
    ids, entries = replies(4)
    hasty = [[*entry, b"deadline", b"81"] for entry in entries]  # enqueued at 1 ms
    batcher = Batcher(ring)
    ring.row_ms = 10  # so two rows take a quarter of it

    assert batcher.place_alike(ids, decoded(hasty), 0, 0, [1] * 4) == 4
    assert batcher.place_alike([b"1-9"], decoded(entries[:1]), 0, 0, [1]) == 1

    batches = [batcher.pop_due(0, 0, 0) for _ in range(3)]
    assert [batch.ids for batch in batches if batch] == [ids[:2], ids[2:], [b"1-9"]]


def test_what_is_refused_takes_no_place_from_other_records(ring: Ring) -> None:
    ids, entries = replies(4)
    batcher = Batcher(ring)
    decoder = RecordDecoder((X,), b"reply")

    batcher.place(b"1-8", decoder.decode(b"1-8", [b"uri", b"bad"], 0), 0)
    batcher.place_alike(ids, decoded(entries), 0, 0, [1] * 4)

    refused, full = batcher.pop_refused(), batcher.pop_due(1, 0, 0)
    assert refused is not None
    assert refused.ids == [b"1-8"]
    assert full is not None
    assert full.ids == ids
    assert batcher.pop_refused() is None
    assert not batcher


@pytest.mark.parametrize(
    ("full", "least_load", "age_ms", "max_delay_ms", "expected"),
    [
        (True, 0, 0, 0, True),
        (True, 0, 0, 1000, True),  # a full batch has nothing to wait for
        (True, 1, 0, 0, True),  # one waits while one runs
        (True, 2, 1e9, 0, False),  # and none queues behind a slow one
        (True, 7, 1e9, 0, False),
        (False, 0, 0, 0, True),  # an idle worker takes what there is
        (False, 1, 0, 0, False),  # a busy one leaves it to fill
        (False, 1, 1e9, 5, False),
        (False, 0, 4.9, 5, False),
        (False, 0, 5, 5, True),
        (False, 0, -3, 0, False),  # a clock that was set back
    ],
)
def test_when_a_batch_is_due(full: bool, least_load: int, age_ms: float, max_delay_ms: float, expected: bool) -> None:
    assert is_due(full, least_load, age_ms, max_delay_ms) is expected
