"""Rows of the records that a running node gets, copied out of its rings from outside: the node does nothing for it.

    supervisor                                   process that looks
    ring: memfd             ─────────────────►   /proc/<pid>/fd/<n>, mapped for reading alone
    slot, sequence 7        ─────────────────►   copy: header, signature, row table, inputs in use
    slot, sequence 7 still  ─────────────────►   the copy is whole

A slot keeps the inputs of its last batch until the reader fills the slot again, and has a new sequence number afterwards. So a
copy is whole if the slot has the same number before and after, and is not being filled.
"""

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from cluster_serving.node.models.base import Array
from cluster_serving.node.ring.input_layout import decode_layout
from cluster_serving.node.ring.ring import NAME, Ring, State
from cluster_serving.node.ring.slot import Slot
from cluster_serving.node.worker.inputs import SlotInputs

_LINK = f"/memfd:{NAME} (deleted)"

Row = dict[str, Array]
"""Array of each input of the model, without the batch dimension."""
Draw = Callable[[Sequence[int]], list[int]]
"""Choice of rows: takes the places of the rows of a batch, and returns the places of the rows to decode."""


class _Looked(NamedTuple):
    """Ring, numbers of the batches seen last by slot, and a slot in the memory of this process."""

    ring: Ring
    numbers: list[int]
    copy: Slot


class RingRecords:
    """Records that go through some rings from now on.

    Args:
        rings: rings that are looked at.
        contents: decodes the rows of a slot.
    """

    def __init__(self, rings: Sequence[Ring], contents: SlotInputs) -> None:
        self._contents = contents
        self._looked = [
            _Looked(
                ring,
                [ring.sequence(slot) for slot in range(ring.geometry.slots)],
                Slot(
                    memoryview(mmap.mmap(-1, ring.geometry.slot_stride)), ring.geometry
                ),  # only used pages take memory
            )
            for ring in rings
        ]

    def rows(self, draw: Draw) -> Iterator[Row]:
        """Yield drawn rows of the batches that have come since the last call. Records that the model cannot take are left out."""
        for ring, numbers, copy in self._looked:
            for index, slot in enumerate(ring.slots):
                number = ring.sequence(index)
                if number == numbers[index] or ring.state(index) is State.FILLING:
                    continue
                try:
                    places = copy_batch(slot, copy)
                except (msgspec.DecodeError, IndexError):
                    continue  # the slot is being filled meanwhile
                if ring.state(index) is not State.FILLING and ring.sequence(index) == number and copy.rows == slot.rows:
                    numbers[index] = number
                    yield from self._decoded(copy, draw(places))

    def _decoded(self, slot: Slot, drawn: Sequence[int]) -> Iterator[Row]:
        if drawn:
            runs, _broken = self._contents.decode(slot, range(slot.rows), set(range(slot.rows)).difference(drawn))
            for run in runs:
                for at in range(len(run.rows)):
                    yield {name: array[at, ...].copy() for name, array in run.inputs.items()}


class LiveRecords(RingRecords):
    """Records that go through the rings of a node from now on, seen from outside the node.

    Args:
        pid: process id of the node's supervisor.
        contents: decodes the rows of a slot.

    Raises:
        OSError: the process has ended, or belongs to a different user.
        RingError: the node is of another version.
    """

    def __init__(self, pid: int, contents: SlotInputs) -> None:
        self._pid = pid
        self._found = _rings(pid)
        self._rings: list[Ring] = []
        try:
            for path in self._found.values():
                self._rings.append(Ring.looked_at(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
        except BaseException:
            self.close()
            raise
        super().__init__(self._rings, contents)

    @property
    def has_changed(self) -> bool:
        """True if the node has other rings by now, for another model or configuration, or has ended."""
        try:
            return _rings(self._pid).keys() != self._found.keys()
        except OSError:
            return True

    def close(self) -> None:
        """Forget the rings."""
        for ring in self._rings:
            ring.close()
        self._rings.clear()


def _rings(pid: int) -> dict[int, Path]:
    """Return the descriptors of a process that are rings, by inode.

    Raises:
        OSError: the process has ended, or belongs to a different user.
    """
    found: dict[int, Path] = {}
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            if str(path.readlink()) == _LINK:
                found[path.stat().st_ino] = path
    return found


def copy_batch(slot: Slot, copy: Slot) -> list[int]:
    """Copy a batch into the memory of this process, and return the places of its rows."""
    copy.describe_as(slot)
    rows = [row for row in copy.table() if row.place >= 0]
    areas = decode_layout(copy.signature).inputs if rows else []
    used = max(
        (
            *(area.offset + copy.rows * area.row_bytes for area in areas),
            *(start + size for row in rows for start, size in row.spans),
        ),
        default=0,
    )
    copy.inputs[:used] = slot.inputs[:used]
    return [row.place for row in rows]
