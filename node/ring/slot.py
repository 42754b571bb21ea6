"""One batch in shared memory, from first row to published result.

    | header | signature | row table | outcomes | inputs ........... | outputs ........... |

The reader writes signature, row table and inputs. The worker writes outcomes and outputs. The writer reads all areas. The header
(`Header`) holds lengths, times and the progress of the batch, so that the supervisor knows the rows that a dead worker was
running. `isolation.py` decides how these rows run again.

A slot whose outputs are full is published before every row has run: `make_room`.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cluster_serving.node.ring.isolation import Progress

PAGE = 4096
SIGNATURE_BYTES = 16 * PAGE  # an input takes about 40 bytes, and some models have hundreds of inputs
LARGEST_ROW_ENTRY = 16 << 10
"""Largest entry of the row table in bytes. A uri has at most 4 KiB, and an error message is cut to 2 KiB."""
LARGEST_MESSAGE = 2 << 10
"""Largest error message in bytes of UTF-8. A longer message is cut."""
LARGEST_DETAIL = 8 << 10
"""Largest `Outcome.detail` in bytes of UTF-8. The end of a longer detail is kept."""
LARGEST_OUTCOME = 16 << 10
"""Largest outcome of a single row in bytes."""


def paged(size: int) -> int:
    """Return the size rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def areas(memory: memoryview, sizes: Iterable[int]) -> Iterator[memoryview]:
    """Yield areas of the memory, one after another, of the given sizes in bytes. Each area begins on a page."""
    at = 0
    for size in sizes:
        yield memory[at : at + size]
        at += paged(size)


class Geometry(msgspec.Struct, frozen=True):
    """Sizes of a ring: `slots` of at most `batch` rows, with `slot_bytes` each for inputs and for outputs."""

    slots: int
    batch: int
    slot_bytes: int
    workers: int

    @property
    def table_bytes(self) -> int:
        """Bytes for the row table of a slot."""
        return paged(self.batch * 512 + LARGEST_ROW_ENTRY)

    @property
    def outcome_bytes(self) -> int:
        """Bytes for the outcomes of a slot."""
        return paged(self.batch * (LARGEST_OUTCOME + 4) + SIGNATURE_BYTES)

    @property
    def slot_areas(self) -> tuple[int, ...]:
        """Bytes of each area of a slot: header, signature, row table, outcomes, inputs, outputs."""
        return (
            _BLANK.nbytes,
            SIGNATURE_BYTES,
            self.table_bytes,
            self.outcome_bytes,
            self.slot_bytes,
            self.slot_bytes,
        )

    @property
    def slot_stride(self) -> int:
        """Bytes from the start of one slot to the start of the next slot."""
        return sum(map(paged, self.slot_areas))


class StoredOutput(msgspec.Struct, frozen=True, array_like=True):
    """Output of one or several rows: a C-ordered array (rows, *row_shape) at `offset` of the outputs.

    Text has the dtype "str", and `spans` instead of shape and offset: the JSON of each row (offset and length in the outputs).
    Nested values have the dtype "nested", and the spans of the value of each row (`client/wire/nested.py`).
    `batch_axis` is the place of the batch dimension in the model's output, which an answer with this dimension gets back. -1: the
    output has none.
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...] = ()
    offset: int = 0
    spans: list[tuple[int, int]] = []
    batch_axis: int = 0

    @property
    def batched_shape(self) -> tuple[int, ...]:
        """Shape of one row with a batch dimension of 1."""
        if self.batch_axis < 0:
            return self.row_shape
        return (*self.row_shape[: self.batch_axis], 1, *self.row_shape[self.batch_axis :])

    @property
    def is_text(self) -> bool:
        """True when the output holds strings."""
        return self.dtype == "str"


class OutcomesFullError(Exception):
    """Outcomes have no room in their slot. `fitting`: how many of them, from the first on, would have."""

    def __init__(self, fitting: int) -> None:
        super().__init__(f"the slot has room for the first {fitting} outcomes alone")
        self.fitting = fitting


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of one or several rows: outputs, an error for all rows, or a value for each row (offset and length in the outputs).

    `values` are JSON. `filtered` are results of a filter in msgpack, because the dialects write numbers differently and JSON has
    no NaN. `detail` is the part of an error for operators, not for clients: a traceback, or the stacks of a hung worker.
    """

    rows: list[int]
    outputs: list[StoredOutput] = []
    values: list[tuple[int, int]] = []
    filtered: list[tuple[int, int]] = []
    error: tuple[str, str] | None = None
    detail: str = ""

    @property
    def is_large(self) -> bool:
        """True when a slot has no room for outcomes of the same size for every row of a batch."""
        return len(_encode(self)) > LARGEST_OUTCOME


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Record in a slot: row `place` of the inputs, or -1 and the `error` of a refused record.

    `spans` has the positions of the variable-length inputs (offset and length in the inputs), in the order of the layout.
    `deadline_ms` is Unix time on Redis' clock, or 0. `traceparent` is for log lines and spans, and may be empty. `read_us` is the
    time on the monotonic clock, in µs, at which the reader got the record. `deliveries` is the number of times that Redis has
    delivered the record to a reader, as far as the present reader knows.
    """

    id: bytes
    uri: bytes
    reply: bytes
    flags: int
    place: int
    spans: list[tuple[int, int]] = []
    error: tuple[str, str] | None = None
    deadline_ms: int = 0
    traceparent: bytes = b""
    read_us: int = 0
    deliveries: int = 1


ORIGINAL = 1
"""Flag of a row: the request came in the original dialect."""
BATCHED = 2
"""Flag of a row: the record carried a batch dimension of 1, and the answer keeps the dimension."""
BY_ORDER = 4
"""Flag of a row: the record's several inputs were bound by order, and the receipt says so."""
LEGACY = 8
"""Flag of a row in the original dialect: the client is older than 0.9, and reads text below `result:`."""

_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


class Header:
    """Fields of the header, int64 each, and the process that writes each field. The reader's `Slot.fill` clears all fields.

    The fields are plain numbers, because on Python 3.11 each look-up of a member of an `IntEnum` takes 0.1 µs more.
    """

    ROWS = 0  # reader: filled rows of the inputs
    SIGNATURE_BYTES = 1  # reader: length of the encoded layout
    TABLE_BYTES = 2  # reader: length of the row table
    FILLED_US = 3  # reader: time (`now_us`) at which the batch was closed
    DEADLINE_MS = 4  # reader: earliest deadline of the rows, Unix time on Redis' clock, 0 without a deadline
    HANDED_NS = 5  # reader, supervisor: monotonic clock at the last hand-over to a worker
    STARTED_US = 6  # worker: time at which the first run started, 0 before
    ENDED_US = 7  # worker: time at which the last run ended, 0 before
    OUTCOME_BYTES = 8  # worker, supervisor after a death: length of the outcomes
    OUTPUT_BYTES = 9  # worker: used bytes of the outputs
    NEXT_ROW = 10  # worker, supervisor after a death: first row without an outcome (`Progress`)
    LIMIT = 11  # supervisor after a death: largest number of rows in a run, 0 without a limit
    DEATHS_ALONE = 12  # supervisor after a death, worker after a run: deaths in which only the next row was run
    PUBLISHED_ROWS = 13  # writer: rows published before the outputs were emptied, from the first row on


_BLANK = memoryview(bytes(8 * (Header.PUBLISHED_ROWS + 1))).cast("q")


class Slot:
    """Areas and header of one slot."""

    def __init__(self, memory: memoryview, geometry: Geometry) -> None:
        header, self._signature, self._table, self._outcomes, self.inputs, self.outputs = areas(
            memory, geometry.slot_areas
        )
        self._header = header.cast("q")  # ten times faster than numpy for single numbers

    @property
    def rows(self) -> int:
        """Number of filled rows of the inputs."""
        return self._header[Header.ROWS]

    @property
    def progress(self) -> Progress:
        """Progress of the batch through the model."""
        header = self._header
        return Progress(header[Header.ROWS], header[Header.NEXT_ROW], header[Header.LIMIT], header[Header.DEATHS_ALONE])

    @progress.setter
    def progress(self, progress: Progress) -> None:
        header = self._header
        header[Header.LIMIT] = progress.limit
        header[Header.DEATHS_ALONE] = progress.deaths_alone
        # Written last: if the worker is killed earlier, the rows run again instead of staying without an answer.
        header[Header.NEXT_ROW] = progress.next_row

    @property
    def output_bytes(self) -> int:
        """Number of bytes of the outputs in use."""
        return self._header[Header.OUTPUT_BYTES]

    @property
    def times_us(self) -> tuple[int, int, int]:
        """Times in µs of the monotonic clock: closed by the reader, first run started, last run ended."""
        header = self._header
        return header[Header.FILLED_US], header[Header.STARTED_US], header[Header.ENDED_US]

    @property
    def handed_s(self) -> float:
        """Seconds of the monotonic clock at which the slot was last handed to a worker."""
        return self._header[Header.HANDED_NS] / 1e9

    @property
    def deadline_ms(self) -> int:
        """Earliest deadline of the rows, 0 without a deadline."""
        return self._header[Header.DEADLINE_MS]

    @property
    def signature(self) -> bytes:
        """Encoded layout of the inputs."""
        return bytes(self._signature[: self._header[Header.SIGNATURE_BYTES]])

    def fill(self, signature: bytes, rows: list[Row], placed: int) -> None:
        """Reader: write signature, row table and header. `placed` rows of the inputs are filled."""
        table = _encode(rows)
        self._signature[: len(signature)] = signature
        self._table[: len(table)] = table
        header = self._header
        header[:] = _BLANK
        header[Header.ROWS] = placed
        header[Header.SIGNATURE_BYTES] = len(signature)
        header[Header.TABLE_BYTES] = len(table)
        header[Header.FILLED_US] = now_us()
        header[Header.DEADLINE_MS] = min((row.deadline_ms for row in rows if row.deadline_ms), default=0)

    def describe_as(self, other: "Slot") -> None:
        """Copy header, signature and row table of another slot, and neither its inputs nor its outputs."""
        header = self._header
        header[:] = other._header
        for mine, theirs, size in (
            (self._signature, other._signature, header[Header.SIGNATURE_BYTES]),
            (self._table, other._table, header[Header.TABLE_BYTES]),
        ):
            mine[:size] = theirs[:size]

    def note_hand_over(self) -> None:
        """Reader, supervisor: note that the slot goes to a worker. The worker's time begins now."""
        self._header[Header.HANDED_NS] = time.monotonic_ns()

    def table(self) -> list[Row]:
        """Return every record of the slot, refused records included, except records published before `make_room`."""
        rows = _decode_rows(self._table[: self._header[Header.TABLE_BYTES]])
        published = self._header[Header.PUBLISHED_ROWS]
        return [row for row in rows if row.place >= published] if published else rows

    @property
    def unfinished(self) -> bool:
        """True while rows have no outcome. In the state DONE, the outputs had no room for these rows."""
        return self._header[Header.NEXT_ROW] < self._header[Header.ROWS]

    def make_room(self) -> None:
        """Writer: forget the published rows and their outputs, so that a worker can run the rest."""
        header = self._header
        # Written first: if the writer is killed later, the next writer publishes nothing out of the emptied areas.
        header[Header.PUBLISHED_ROWS] = header[Header.NEXT_ROW]
        header[Header.OUTCOME_BYTES] = header[Header.OUTPUT_BYTES] = 0
        header[Header.STARTED_US] = header[Header.ENDED_US] = 0

    def begin(self) -> None:
        """Worker: note when the first run starts."""
        if not self._header[Header.STARTED_US]:
            self._header[Header.STARTED_US] = now_us()

    def add(self, outcomes: Sequence[Outcome], next_row: int, output_bytes: int) -> None:
        """Worker: store the outcomes of finished rows. The next run begins at `next_row`.

        Raises:
            OutcomesFullError: the outcomes have no room. The slot is as before.
        """
        at = self._header[Header.OUTCOME_BYTES]
        for number, outcome in enumerate(outcomes):
            encoded = _encode(outcome)
            end = at + 4 + len(encoded)
            if end > len(self._outcomes):
                raise OutcomesFullError(number)
            self._outcomes[at:end] = len(encoded).to_bytes(4, "little") + encoded
            at = end
        header = self._header
        header[Header.ENDED_US] = now_us()
        header[Header.OUTPUT_BYTES] = output_bytes
        header[Header.OUTCOME_BYTES] = at
        self.progress = self.progress.after_success(next_row)

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of the rows so far."""
        found: list[Outcome] = []
        at, end = 0, self._header[Header.OUTCOME_BYTES]
        while at < end:
            size = int.from_bytes(self._outcomes[at : at + 4], "little")
            found.append(_decode_outcome(self._outcomes[at + 4 : at + 4 + size]))
            at += 4 + size
        return found

    def worker_died(self, error: tuple[str, str], detail: str = "") -> None:
        """Supervisor: note that a worker died in the next run. A culprit gets the error."""
        progress, culprit = self.progress.after_death()
        if culprit is not None:
            outcome = Outcome([culprit], error=error, detail=cut_detail(detail))
            self.add([outcome], progress.next_row, self.output_bytes)
        self.progress = progress


def cut(message: str) -> str:
    """Return the message, cut to `LARGEST_MESSAGE` bytes of UTF-8."""
    return message.encode(errors="replace")[:LARGEST_MESSAGE].decode(errors="ignore")


def cut_detail(detail: str) -> str:
    """Return the last `LARGEST_DETAIL` bytes of UTF-8 of a traceback or dump, because the end tells most."""
    return detail.encode(errors="replace")[-LARGEST_DETAIL:].decode(errors="ignore")


def now_us() -> int:
    """Return µs of the monotonic clock. `Ring.clock_offset_ms` turns the time into Unix time on Redis' clock."""
    return time.monotonic_ns() // 1000


def array_at(area: memoryview, dtype: str, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
    """Return an array that is a view of an area of a slot."""
    return np.ndarray(shape, dtype, area, offset)
