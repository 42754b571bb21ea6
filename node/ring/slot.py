"""One batch in shared memory, from first row to published result.

    | header | signature | row table | outcomes | inputs ........... | outputs ........... |

The reader writes signature, row table and inputs. The worker writes outcomes and outputs. The writer reads all areas. The header
(int64 fields) holds the lengths and the progress of a run, so that the supervisor knows the rows that a dead worker was running.
These rows run again in halves (`Slot.worker_died`), until the row that kills workers stands alone.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

PAGE = 4096
SIGNATURE_BYTES = 16 * PAGE  # an input takes about 40, and some models have hundreds of inputs
LARGEST_ROW_ENTRY = 16 << 10
"""Largest entry of the row table in bytes. A uri has at most 4 KiB, and an error message is cut to 2 KiB."""
LARGEST_MESSAGE = 2 << 10
LARGEST_DETAIL = 8 << 10
LARGEST_OUTCOME = 16 << 10
"""Largest outcome of a single row in bytes."""


def paged(size: int) -> int:
    """Return the size rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


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
    def slot_stride(self) -> int:
        """Bytes from the start of one slot to the start of the next slot."""
        return PAGE + SIGNATURE_BYTES + self.table_bytes + self.outcome_bytes + 2 * paged(self.slot_bytes)


class StoredOutput(msgspec.Struct, frozen=True, array_like=True):
    """Output of one or several rows: a C-ordered array (rows, *row_shape) at `offset` of the outputs.

    Text has the dtype "str", and `spans` instead of shape and offset: the JSON of each row (offset and length in the outputs).
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...] = ()
    offset: int = 0
    spans: list[tuple[int, int]] = []

    @property
    def is_text(self) -> bool:
        """True when the output holds strings."""
        return self.dtype == "str"


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """Outcome of one or several rows: outputs, an error for all rows, or a value for each row (offset and length in the outputs).

    `values` are JSON. `filtered` are results of a filter in msgpack, because the dialects write numbers differently and JSON has
    no NaN. `again`: the outputs had no room beside the outputs of neighbours, so the rows are left pending and come back.
    `detail` is the part of an error for operators, not for clients: a traceback, or the stacks of a hung worker.
    """

    rows: list[int]
    outputs: list[StoredOutput] = []
    values: list[tuple[int, int]] = []
    filtered: list[tuple[int, int]] = []
    error: tuple[str, str] | None = None
    detail: str = ""
    again: bool = False

    @property
    def is_large(self) -> bool:
        """True when a slot has no room for outcomes of the same size for every row of a batch."""
        return len(_encode(self)) > LARGEST_OUTCOME


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Record in a slot: row `place` of the inputs, or -1 and the `error` of a refused record.

    `spans` has the positions of the variable-length inputs (offset and length in the inputs), in the order of the layout.
    `deadline_ms` is Unix time on Redis' clock, or 0. `traceparent` is for log lines, and may be empty. `read_us` is the Unix time
    in µs at which the reader got the record. `deliveries` is the number of times that Redis has delivered the record to a reader,
    as far as the present reader knows.
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

_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


# Fields of the header, int64 each.
_ROWS, _SIGNATURE_BYTES, _TABLE_BYTES, _OUTCOME_BYTES, _OUTPUT_BYTES, _NEXT_ROW, _RUN_ROWS, _DEATHS_ALONE = range(8)
_FILLED_US, _STARTED_US, _ENDED_US, _HANDED_NS, _DEADLINE_MS = range(8, 13)
_HEADER_BYTES = 8 * 13


class Slot:
    """Areas and header of one slot."""

    def __init__(self, memory: memoryview, geometry: Geometry) -> None:
        self._header = memory[:_HEADER_BYTES].cast("q")  # ten times faster than numpy for single numbers
        at = PAGE
        self._signature = memory[at : at + SIGNATURE_BYTES]
        at += SIGNATURE_BYTES
        self._table = memory[at : at + geometry.table_bytes]
        at += geometry.table_bytes
        self._outcomes = memory[at : at + geometry.outcome_bytes]
        at += geometry.outcome_bytes
        self.inputs = memory[at : at + geometry.slot_bytes]
        at += paged(geometry.slot_bytes)
        self.outputs = memory[at : at + geometry.slot_bytes]

    @property
    def rows(self) -> int:
        """Number of filled rows of the inputs."""
        return self._header[_ROWS]

    @property
    def next_row(self) -> int:
        """First row that has no outcome yet."""
        return self._header[_NEXT_ROW]

    @property
    def run_rows(self) -> int:
        """Number of rows of the next run: all remaining rows, or fewer while a row at fault is being isolated."""
        left = self.rows - self.next_row
        return min(self._header[_RUN_ROWS] or left, left)

    @property
    def output_bytes(self) -> int:
        """Number of bytes of the outputs in use."""
        return self._header[_OUTPUT_BYTES]

    @property
    def times_us(self) -> tuple[int, int, int]:
        """Unix times in µs: closed by the reader, first run started, last run ended."""
        header = self._header
        return header[_FILLED_US], header[_STARTED_US], header[_ENDED_US]

    @property
    def handed_s(self) -> float:
        """Seconds of the monotonic clock at which the slot was last handed to a worker."""
        return self._header[_HANDED_NS] / 1e9

    @property
    def deadline_ms(self) -> int:
        """Earliest deadline of the rows, 0 without a deadline."""
        return self._header[_DEADLINE_MS]

    @property
    def signature(self) -> bytes:
        """Encoded layout of the inputs."""
        return bytes(self._signature[: self._header[_SIGNATURE_BYTES]])

    def fill(self, signature: bytes, rows: list[Row], placed: int) -> None:
        """Reader: write signature, row table and header. `placed` rows of the inputs are filled."""
        table = _encode(rows)
        self._signature[: len(signature)] = signature
        self._table[: len(table)] = table
        deadline_ms = min((row.deadline_ms for row in rows if row.deadline_ms), default=0)
        lengths = (placed, len(signature), len(table), 0, 0, 0, 0, 0)
        for field, value in enumerate((*lengths, now_us(), 0, 0, time.monotonic_ns(), deadline_ms)):
            self._header[field] = value

    def handed_over(self) -> None:
        """Supervisor: note that the slot goes to a new worker. The worker's time begins now."""
        self._header[_HANDED_NS] = time.monotonic_ns()

    def table(self) -> list[Row]:
        """Return every record of the slot, refused records included."""
        return _decode_rows(self._table[: self._header[_TABLE_BYTES]])

    def begin(self) -> None:
        """Worker: note when the first run starts."""
        if not self._header[_STARTED_US]:
            self._header[_STARTED_US] = now_us()

    def isolate(self, rows: int) -> None:
        """Limit each further run to `rows` rows, to find the row at fault. 0: no limit."""
        self._header[_RUN_ROWS] = rows
        self._header[_DEATHS_ALONE] = 0

    def add(self, outcomes: Sequence[Outcome], next_row: int, output_bytes: int) -> None:
        """Worker: store the outcomes of finished rows. The next run begins at `next_row`."""
        at = self._header[_OUTCOME_BYTES]
        for outcome in outcomes:
            encoded = _encode(outcome)
            end = at + 4 + len(encoded)
            self._outcomes[at:end] = len(encoded).to_bytes(4, "little") + encoded
            at = end
        header = self._header
        header[_ENDED_US] = now_us()
        header[_OUTPUT_BYTES] = output_bytes
        header[_OUTCOME_BYTES] = at
        header[_DEATHS_ALONE] = 0
        # Written last: if the worker is killed earlier, the rows run again instead of staying without an answer.
        header[_NEXT_ROW] = next_row

    def outcomes(self) -> list[Outcome]:
        """Return the outcomes of the rows so far."""
        found: list[Outcome] = []
        at, end = 0, self._header[_OUTCOME_BYTES]
        while at < end:
            size = int.from_bytes(self._outcomes[at : at + 4], "little")
            found.append(_decode_outcome(self._outcomes[at + 4 : at + 4 + size]))
            at += 4 + size
        return found

    def worker_died(self, error: tuple[str, str], detail: str = "") -> None:
        """Supervisor: halve the runs after a worker died in a run. A row that was alone in two deaths gets the error."""
        running = self.run_rows
        if running > 1:
            self.isolate(running // 2)
            return
        self._header[_DEATHS_ALONE] += 1
        # The first death may be a kill by the kernel or an operator. The second death is put down to the record.
        if running == 1 and self._header[_DEATHS_ALONE] > 1:
            outcome = Outcome([self.next_row], error=error, detail=cut_detail(detail))
            self.add([outcome], self.next_row + 1, self.output_bytes)
            self.isolate(0)


def cut(message: str) -> str:
    """Return the message, cut to `LARGEST_MESSAGE` bytes of UTF-8."""
    return message.encode(errors="replace")[:LARGEST_MESSAGE].decode(errors="ignore")


def cut_detail(detail: str) -> str:
    """Return the last `LARGEST_DETAIL` bytes of UTF-8 of a traceback or dump, because the end tells most."""
    return detail.encode(errors="replace")[-LARGEST_DETAIL:].decode(errors="ignore")


def now_us() -> int:
    """Return Unix time in µs."""
    return time.time_ns() // 1000


def array_at(area: memoryview, dtype: str, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
    """Return an array that is a view of an area of a slot."""
    return np.ndarray(shape, dtype, area, offset)
