"""Rows that a process copies out of the rings of another: whole ones, each once, and never a mixture."""

import os
from collections.abc import Iterator, Sequence

import cv2
import numpy as np
import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import Array
from cluster_serving.node.processing.options import ImageOptions
from cluster_serving.node.reader.batcher import Batcher
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, Slot
from cluster_serving.node.shadow import live_records
from cluster_serving.node.shadow.live_records import LiveRecords
from cluster_serving.node.worker.inputs import SlotInputs

GEOMETRY = Geometry(slots=3, batch=4, slot_bytes=1 << 20, workers=1)
VECTOR = (TensorSpec("x", "float32", (None, 2)),)
IMAGE = (TensorSpec("image", "float32", (None, 3, 4, 4)),)
LATER = (("worker", State.RUNNING), ("worker", State.DONE), ("writer", State.PUBLISHING), ("writer", State.FREE))


class Node:
    """A ring as reader, worker and writer leave it, in this process."""

    def __init__(self, inputs: tuple[TensorSpec, ...]) -> None:
        self.ring = Ring(GEOMETRY)
        self._decoder = RecordDecoder(inputs, b"")
        self._batcher = Batcher(self.ring)
        self._sequence = 0
        self.live = LiveRecords(os.getpid(), SlotInputs(inputs, ImageOptions()))

    def fill(self, *values: Array | bytes, name: str = "x") -> int:
        """A batch of records that is not handed over yet."""
        for value in values:
            sent = self._decoder.decode(b"1-1", encode_record("u", {name: value}), 0)
            assert self._batcher.place(b"1-1", sent, 0)
        batch = self._batcher.pop_due(0, 0, 0)
        assert batch is not None
        return batch.index

    def hand_over(self, slot: int) -> None:
        """The batch goes to the worker."""
        self._sequence += 1
        self.ring.hand_over("reader", slot, 0, self._sequence)

    def serve(self, *values: Array | bytes, name: str = "x") -> None:
        """A batch from the reader to its published results."""
        slot = self.fill(*values, name=name)
        self.hand_over(slot)
        for process, state in LATER:
            self.ring.move(process, slot, state)

    def rows(self) -> list[list[float]]:
        """All new rows."""
        return [row["x"].tolist() for row in self.live.rows(list)]


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node(VECTOR)
    yield made
    made.live.close()
    made.ring.close()


def vector(value: float) -> Array:
    return np.array([value, -value], np.float32)


def test_each_batch_is_seen_once_while_it_is_under_way_and_afterwards(node: Node) -> None:
    node.serve(vector(1), vector(2))
    seen = [node.rows(), node.rows()]
    node.hand_over(node.fill(vector(3)))
    seen += [node.rows(), node.rows()]

    assert seen == [[[1, -1], [2, -2]], [], [[3, -3]], []]


def test_batches_from_before_are_not_seen() -> None:
    early = Node(VECTOR)
    early.serve(vector(1))
    late = LiveRecords(os.getpid(), SlotInputs(VECTOR, ImageOptions()))

    assert list(late.rows(list)) == []
    late.close()
    early.live.close()
    early.ring.close()


def test_only_drawn_rows_are_yielded(node: Node) -> None:
    offered: list[Sequence[int]] = []

    def draw(places: Sequence[int]) -> list[int]:
        offered.append(places)
        return [2, 0]

    node.serve(vector(1), vector(2), vector(3))

    assert sorted(row["x"][0] for row in node.live.rows(draw)) == [1, 3]
    assert offered == [[0, 1, 2]]


def test_a_slot_that_is_being_filled_is_left_alone(node: Node) -> None:
    node.serve(vector(1))
    slot = node.fill(vector(2))  # over the batch before
    while_filled = node.rows()
    node.hand_over(slot)

    assert (while_filled, node.rows()) == ([], [[2, -2]])


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_batch_that_changes_while_it_is_copied_is_dropped(
    node: Node, handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = live_records.copy_batch

    def overtaken(slot: Slot, target: Slot) -> list[int]:
        found = copy(slot, target)
        monkeypatch.setattr(live_records, "copy_batch", copy)
        again = node.fill(vector(2))
        if handed_over:
            node.hand_over(again)
        return found

    monkeypatch.setattr(live_records, "copy_batch", overtaken)
    node.serve(vector(1))

    assert node.rows() == []
    assert node.rows() == ([[2, -2]] if handed_over else [])


def test_a_batch_that_a_dead_reader_has_overwritten_in_part_has_no_rows(node: Node) -> None:
    node.serve(vector(1))
    slot = node.fill(vector(2))
    node.ring.slots[slot].fill(b"", [], 0)  # as the next reader does
    node.ring.move("reader", slot, State.FREE)

    assert node.rows() == []


def test_images_are_decoded_and_a_broken_one_is_left_out() -> None:
    node = Node(IMAGE)
    pixels = np.full((4, 4, 3), 7, np.uint8)
    node.serve(cv2.imencode(".png", pixels)[1].tobytes(), b"\x89PNG\r\n\x1a\nbroken", name="image")

    (row,) = node.live.rows(list)

    assert row["image"].tolist() == np.full((3, 4, 4), 7.0).tolist()
    node.live.close()
    node.ring.close()


def test_the_view_from_outside_changes_nothing(node: Node) -> None:
    with pytest.raises(TypeError, match="read-only"):
        Ring.looked_at(os.dup(node.ring.fd)).move("reader", 0, State.FILLING)


def test_another_ring_is_noticed(node: Node) -> None:
    before = node.live.has_changed
    other = Ring(GEOMETRY)

    assert (before, node.live.has_changed) == (False, True)
    other.close()
