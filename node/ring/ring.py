"""A ring of batch slots in one shared-memory segment.

    | geometry | states | owners | sequences | serving | pulses | numbers | row_ms | proof | model_hash | counters | measures |
    | slot 0 | slot 1 | ...

    geometry     int64 each: the fields of `Geometry`
    states       uint8 a slot: a `State`
    owners       uint8 a slot: the worker that got the slot last
    sequences    int64 a slot: position in the order of hand-over
    serving      uint8 a worker: 1 if slots may be handed to the worker
    pulses       int64 a process: ns of the monotonic clock at the last sign of life, or ahead while the process connects
    numbers      int64 each: properties of `Ring` with a setter
    row_ms       float64: the property of the same name
    proof        uint16, number of bytes, and the bytes: the property of the same name
    model_hash   uint8, 0 or 1 + number of bytes, and the bytes: the property of the same name
    counters     int64, a row a process: columns as in `Count` of `metrics.py`
    measures     float64, a row a process: histograms of `metrics.py`
    slot         header, inputs, outputs and more: `slot.py`

    FREE --reader--> FILLING --reader--> READY --worker--> RUNNING --worker--> DONE --writer--> PUBLISHING --writer--> FREE
                           └----reader, refused records------------------------^

A slot with full outputs goes back once the rows that had room are published, and the rest of its rows are run:

    PUBLISHING --writer--> READY

After a process has died, three arrows lead back:

    FILLING --reader--> FREE          RUNNING --supervisor--> READY          PUBLISHING --writer--> DONE

In each state exactly one process may touch the slot: the process named on the arrow that leaves the state. READY and RUNNING
belong to the worker that `owners` names. Only the supervisor changes the owner of a READY slot, and takes RUNNING slots from a
dead worker. There is no lock: a process killed at any instruction leaves the slot in a state that tells the next step, and
publishing twice is harmless (`finish.lua`).

The segment is an anonymous memfd that the supervisor passes to its children. The kernel frees the segment with the last process.
A page takes memory only when first touched, so a slot may be far larger than the usual batch.
"""

import errno
import mmap
import os
import sys
import time
from array import array
from collections.abc import Generator
from contextlib import contextmanager
from enum import IntEnum
from itertools import repeat
from operator import itemgetter

from msgspec.structs import astuple

from cluster_serving.node.ring.metrics import COUNTER_CELLS, MEASURE_CELLS
from cluster_serving.node.ring.slot import Geometry, Slot, areas, paged

NAME = "cluster-serving-ring"
"""Name of the segment, as the kernel shows it among the descriptors of a process."""
_GEOMETRY_BYTES = 8 * len(Geometry.__struct_fields__)
_PROOF_BYTES, _HASH_BYTES = 2048, 64
_CONNECTING_NS = 120 * 10**9


class State(IntEnum):
    """State of a slot."""

    FREE = 0
    FILLING = 1
    READY = 2
    RUNNING = 3
    DONE = 4
    PUBLISHING = 5


TRANSITIONS: dict[str, frozenset[tuple[State, State]]] = {
    "reader": frozenset(
        {
            (State.FREE, State.FILLING),
            (State.FILLING, State.READY),
            (State.FILLING, State.DONE),
            (State.FILLING, State.FREE),
        },
    ),
    "worker": frozenset({(State.READY, State.RUNNING), (State.RUNNING, State.DONE)}),
    "writer": frozenset(
        {
            (State.DONE, State.PUBLISHING),
            (State.PUBLISHING, State.FREE),
            (State.PUBLISHING, State.READY),
            (State.PUBLISHING, State.DONE),
        },
    ),
    "supervisor": frozenset({(State.RUNNING, State.READY)}),
}

HANDED_OVER = (State.READY, State.RUNNING, State.DONE, State.PUBLISHING)
"""States of a slot between reader and client."""

_MAX_SLOTS = 255


class RingError(Exception):
    """A slot was moved against its state machine, which is a bug, or a ring is of another version."""


class Ring:
    """All slots of a lane, with state and owner of each. The descriptor is passed to the lane's processes.

    `process` is READER, WRITER or FIRST_WORKER + worker of `metrics.py`.
    """

    def __init__(self, geometry: Geometry, fd: int | None = None, access: int = mmap.ACCESS_WRITE) -> None:
        if not 0 < geometry.slots <= _MAX_SLOTS:
            raise RingError(f"a ring has 1 to {_MAX_SLOTS} slots, not {geometry.slots}")
        processes = geometry.workers + 2
        sizes = (
            _GEOMETRY_BYTES,  # geometry
            geometry.slots,  # states
            geometry.slots,  # owners
            8 * geometry.slots,  # sequences
            geometry.workers,  # serving
            8 * processes,  # pulses
            8 * 9,  # numbers
            8,  # row_ms
            _PROOF_BYTES,  # proof
            _HASH_BYTES,  # model_hash
            8 * COUNTER_CELLS * processes,  # counters
            8 * MEASURE_CELLS * processes,  # measures
            *repeat(geometry.slot_stride, geometry.slots),
        )
        total = sum(map(paged, sizes))
        if total > sys.maxsize:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        if fd is None:
            fd = os.memfd_create(NAME)
            os.ftruncate(fd, total)
            os.pwrite(fd, memoryview(array("q", astuple(geometry))), 0)
        self.fd = fd
        self.geometry = geometry
        try:
            segment = memoryview(mmap.mmap(fd, total, access=access))
        except OSError:  # a mapping has a descriptor of its own, and the process may have none left
            os.close(fd)
            raise
        (
            _,
            states,
            owners,
            sequences,
            serving,
            pulses,
            numbers,
            row_ms,
            proof,
            model_hash,
            counters,
            measures,
            *slots,
        ) = areas(segment, sizes)
        self._states, self._owners, self._sequences = states, owners, sequences.cast("q")
        self._serving, self._pulses = serving, pulses.cast("q")
        (
            self._reader_wants,
            self._consuming,
            self._most_rows,
            self._most_slots,
            self._row_output_bytes,
            self._clock_offset,
            self._published_us,
            self._shadowed,
            self._shadow_agreeing,
        ) = (numbers[at : at + 8].cast("q") for at in range(0, len(numbers), 8))
        self._row_ms = row_ms.cast("d")
        self._proof, self._model_hash = proof, model_hash
        row = 8 * COUNTER_CELLS
        self.counters = [counters[at : at + row].cast("q") for at in range(0, len(counters), row)]
        row = 8 * MEASURE_CELLS
        self.measures = [measures[at : at + row].cast("d") for at in range(0, len(measures), row)]
        self.slots = [Slot(area, geometry) for area in slots]

    @classmethod
    def looked_at(cls, fd: int) -> "Ring":
        """Return the ring of a descriptor for a process that is no part of the lane, and may not change anything in it.

        Raises:
            RingError: the ring is of another version.
        """
        try:
            return cls(Geometry(*array("q", os.pread(fd, _GEOMETRY_BYTES, 0))), fd, mmap.ACCESS_READ)
        except ValueError as error:  # the segment is smaller
            raise RingError(str(error)) from error

    def state(self, slot: int) -> State:
        """Return the state of one slot."""
        return State(self._states[slot])

    def sequence(self, slot: int) -> int:
        """Return the number of a slot's last hand-over. 0: the slot was never handed over."""
        return self._sequences[slot]

    def owner(self, slot: int) -> int:
        """Return the worker that got the slot last."""
        return self._owners[slot]

    def first(self, state: State) -> int | None:
        """Return the lowest slot in use with the given state, or None. Low slots, used again and again, stay in the cache."""
        at = bytes(self._states).find(state, 0, self.most_slots)
        return None if at < 0 else at

    def oldest(self, state: State, worker: int | None = None) -> int | None:
        """Return the slot handed over first among slots in `state`, and of `worker` if given. None: no slot matches."""
        while True:
            states, found = bytes(self._states), None
            slot = states.find(state)
            while slot >= 0:
                mine = worker is None or self._owners[slot] == worker
                if mine and (found is None or self._sequences[slot] < self._sequences[found]):
                    found = slot
                slot = states.find(state, slot + 1)
            # A slot may go round the ring between the look at its state and the look at its owner. Then look again.
            if found is None or worker is None or (self._states[found], self._owners[found]) == (state, worker):
                return found

    def every(self, *states: State) -> list[int]:
        """Return the slots in the given states, oldest first."""
        found = [slot for slot, state in enumerate(self._in_use()) if state in states]
        return sorted(found, key=self._sequences.__getitem__)

    def owned(self, worker: int, state: State) -> list[int]:
        """Return the slots of one worker in the given state, oldest first."""
        owners = bytes(self._owners)
        return [slot for slot in self.every(state) if owners[slot] == worker]

    def newest(self) -> int:
        """Return the highest sequence number in use."""
        return max(self._sequences)

    def least_loaded(self) -> tuple[int, int] | None:
        """Return the serving worker with the fewest READY and RUNNING slots, and the number of slots. None: no worker serves."""
        loads = {worker: 0 for worker, serving in enumerate(bytes(self._serving)) if serving}
        owners = bytes(self._owners)
        for slot, state in enumerate(self._in_use()):
            if state in (State.READY, State.RUNNING) and owners[slot] in loads:
                loads[owners[slot]] += 1
        return min(loads.items(), key=itemgetter(1), default=None)

    def rows_a_worker(self, further: int) -> float:
        """Return the mean number of rows ahead of a serving worker: the READY rows, the RUNNING rows, and `further` rows."""
        workers = bytes(self._serving).count(1)
        rows = sum(self.slots[slot].rows for slot in self.every(State.READY, State.RUNNING))
        return (rows + further) / workers if workers else 0.0

    def _in_use(self) -> bytes:
        """Return the states of the slots that the reader may fill, and of higher slots that are not empty yet."""
        states = bytes(self._states)
        return states[: max(self.most_slots, len(states.rstrip(b"\0")))]

    def move(self, by: str, slot: int, to: State) -> None:
        """Move a slot along an arrow of the state machine.

        Raises:
            RingError: the kind of process `by` has no arrow from the slot's state to the state `to`.
        """
        state = self._states[slot]
        if (state, to) not in TRANSITIONS[by]:
            raise RingError(f"the {by} cannot move slot {slot} from {State(state).name} to {to.name}")
        self._states[slot] = to

    def hand_over(self, by: str, slot: int, worker: int, sequence: int | None = None) -> None:
        """Make a slot READY for a worker. A `sequence` number orders the slot behind the slots with lower numbers."""
        self.slots[slot].note_hand_over()
        is_ready = self._states[slot] == State.READY  # read first: the new owner may take the slot at once
        self._owners[slot] = worker
        if sequence is not None:
            self._sequences[slot] = sequence
        if not is_ready:
            self.move(by, slot, State.READY)

    def answer(self, slot: int, sequence: int) -> None:
        """Reader: leave a slot of refused records to the writer."""
        self._sequences[slot] = sequence
        self.move("reader", slot, State.DONE)

    def set_serving(self, worker: int, serving: bool) -> None:
        """Supervisor: set whether slots may be handed to a worker."""
        self._serving[worker] = serving

    def beat(self, process: int) -> None:
        """Note a sign of life of a process."""
        self._pulses[process] = time.monotonic_ns()

    @contextmanager
    def connecting(self, process: int) -> Generator[None]:
        """Let a process be silent while it connects to Redis: name servers, TLS and login may be slow."""
        self._pulses[process] = time.monotonic_ns() + _CONNECTING_NS
        try:
            yield
        finally:
            self.beat(process)

    def silent_s(self, process: int) -> float:
        """Return the seconds since the last sign of life of a process, or since boot. Below 0 while the process connects."""
        return (time.monotonic_ns() - self._pulses[process]) / 1e9

    @property
    def reader_wants(self) -> bool:
        """True when records in the reader wait for an idle worker or a free slot, so that the reader must be rung."""
        return bool(self._reader_wants[0])

    @reader_wants.setter
    def reader_wants(self, wants: bool) -> None:
        self._reader_wants[0] = wants

    @property
    def consuming(self) -> bool:
        """True when the reader is connected to Redis and takes entries."""
        return bool(self._consuming[0])

    @consuming.setter
    def consuming(self, consuming: bool) -> None:
        self._consuming[0] = consuming

    @property
    def shadowed(self) -> int:
        """Number of records that the shadow has compared."""
        return self._shadowed[0]

    @shadowed.setter
    def shadowed(self, records: int) -> None:
        self._shadowed[0] = records

    @property
    def shadow_agreeing(self) -> int:
        """Number of these records whose answer agrees with that of float32."""
        return self._shadow_agreeing[0]

    @shadow_agreeing.setter
    def shadow_agreeing(self, records: int) -> None:
        self._shadow_agreeing[0] = records

    @property
    def most_rows(self) -> int:
        """Largest number of rows that the reader puts into a batch. Unless set, as many as a slot has room for."""
        return self._most_rows[0] or self.geometry.batch

    @most_rows.setter
    def most_rows(self, rows: int) -> None:
        self._most_rows[0] = rows

    @property
    def most_slots(self) -> int:
        """Number of slots that the reader fills, lowest first. Unless set, all slots.

        The ring may have more slots, as room for further workers.
        """
        return self._most_slots[0] or self.geometry.slots

    @most_slots.setter
    def most_slots(self, slots: int) -> None:
        self._most_slots[0] = slots

    @property
    def row_output_bytes(self) -> int:
        """Bytes that the outputs of one row take, as seen lately by the workers. 0: not known."""
        return self._row_output_bytes[0]

    @row_output_bytes.setter
    def row_output_bytes(self, size: int) -> None:
        self._row_output_bytes[0] = size

    @property
    def row_ms(self) -> float:
        """Milliseconds that a worker takes for a row, measured in batches with deadlines (`forecast.py`). 0: not known."""
        return self._row_ms[0]

    @row_ms.setter
    def row_ms(self, row_ms: float) -> None:
        self._row_ms[0] = row_ms

    @property
    def proof(self) -> bytes:
        """JSON of the proof by a worker that served rows may share a batch or not (`engines/proof.py`). Empty: none yet."""
        return bytes(self._proof[2 : 2 + int.from_bytes(self._proof[:2])])

    @proof.setter
    def proof(self, content: bytes) -> None:
        self._proof[: 2 + len(content)] = (
            len(content).to_bytes(2) + content
        )  # at once: any worker of the lane may write it

    @property
    def model_hash(self) -> str | None:
        """Fingerprint of the model, written by the supervisor. None: not known yet. Empty: the model has none."""
        length = self._model_hash[0]
        return bytes(self._model_hash[1:length]).decode() if length else None

    @model_hash.setter
    def model_hash(self, model_hash: str) -> None:
        length = 1 + len(model_hash)
        self._model_hash[1:length] = model_hash.encode()
        self._model_hash[0] = length

    @property
    def clock_offset_ms(self) -> int:
        """Milliseconds by which Redis' clock, the clock of deadlines, is ahead of the monotonic clock. Measured by the reader."""
        return self._clock_offset[0]

    @clock_offset_ms.setter
    def clock_offset_ms(self, offset_ms: int) -> None:
        self._clock_offset[0] = offset_ms

    @property
    def published_us(self) -> int:
        """Time at which the writer published the last batch, in µs of the monotonic clock. 0: none yet."""
        return self._published_us[0]

    @published_us.setter
    def published_us(self, time_us: int) -> None:
        self._published_us[0] = time_us

    def redis_ms(self) -> float:
        """Return Unix time in ms on Redis' clock."""
        return time.monotonic() * 1000 + self.clock_offset_ms

    def close(self) -> None:
        """Close this process's descriptor."""
        os.close(self.fd)
