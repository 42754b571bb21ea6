"""One batch in shared memory, from first row to published result.

    | header | signature | row table | outcomes | inputs ........... | outputs ........... |

The reader writes signature, row table and inputs; the worker outcomes and outputs; the writer reads all of them. The header
(int64 each) holds the lengths, and where a run stands, so that the supervisor can tell which rows a dead worker was running.
"""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

PAGE = 4096
SIGNATURE_BYTES = 16 * PAGE  # an input takes about 40; some models have hundreds
LARGEST_ROW_ENTRY = 16 << 10
"""A row table entry is never larger: a uri has at most 4 KiB, an error message is cut to 2 KiB."""
LARGEST_MESSAGE = 2 << 10
LARGEST_DETAIL = 8 << 10
LARGEST_OUTCOME = 16 << 10
"""An outcome of one row by itself is never larger."""


def paged(size: int) -> int:
    """The size rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


class Geometry(msgspec.Struct, frozen=True):
    """How large everything is: `slots` of at most `batch` rows, `slot_bytes` each for inputs and for outputs."""

    slots: int
    batch: int
    slot_bytes: int
    workers: int

    @property
    def table_bytes(self) -> int:
        """Room for the row table of a slot."""
        return paged(self.batch * 512 + LARGEST_ROW_ENTRY)

    @property
    def outcome_bytes(self) -> int:
        """Room for the outcomes of a slot."""
        return paged(self.batch * (LARGEST_OUTCOME + 4) + SIGNATURE_BYTES)

    @property
    def slot_stride(self) -> int:
        """From one slot to the next."""
        return PAGE + SIGNATURE_BYTES + self.table_bytes + self.outcome_bytes + 2 * paged(self.slot_bytes)


class StoredOutput(msgspec.Struct, frozen=True, array_like=True):
    """One output of some rows: a C-ordered array (rows, *row_shape) at `offset` of the outputs.

    Text has the dtype "str", and `spans` instead of shape and offset: for each row its JSON (offset and length in the outputs).
    """

    name: str
    dtype: str
    row_shape: tuple[int, ...] = ()
    offset: int = 0
    spans: list[tuple[int, int]] = []

    @property
    def is_text(self) -> bool:
        """Whether this output holds strings."""
        return self.dtype == "str"


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What came of some rows: outputs, or one error for all, or a value each (offset and length in the outputs).

    `values` are JSON, `filtered` are what a filter left in msgpack: the dialects write its numbers differently, and JSON has no
    NaN. `again`: there was no room for the outputs beside those of the neighbours; the rows are left pending, and come back.
    `detail` is what an operator wants to know of an error and a client does not: a traceback, the stacks of a hung worker.
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
        """Whether one for each row of a batch would be more than a slot has room for."""
        return len(_encode(self)) > LARGEST_OUTCOME


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One record in a slot: row `place` of the inputs, or -1 with the reason why it was refused.

    `spans` says where its variable-length inputs lie (offset and length in the inputs), in the order of the layout.
    `deadline_ms` is Unix time on Redis' clock, or 0. `traceparent` is for log lines, and may be empty. `read_us` is when the
    reader had it, Unix time in µs; `deliveries` how often Redis has given it to a reader, as far as this one knows.
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
"""Flag of a row: it carried a batch dimension of 1, which the answer keeps."""

_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(list[Row]).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


# The header, int64 each.
_ROWS, _SIGNATURE_BYTES, _TABLE_BYTES, _OUTCOME_BYTES, _OUTPUT_BYTES, _NEXT_ROW, _RUN_ROWS, _DEATHS_ALONE = range(8)
_FILLED_US, _STARTED_US, _ENDED_US, _HANDED_NS, _DEADLINE_MS = range(8, 13)
_HEADER_BYTES = 8 * 13


class Slot:
    """One slot: its areas, and what its header says."""

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
        """How many rows of the inputs are filled."""
        return self._header[_ROWS]

    @property
    def next_row(self) -> int:
        """The first row that has no outcome yet."""
        return self._header[_NEXT_ROW]

    @property
    def run_rows(self) -> int:
        """How many rows the next run takes: all that are left, unless one at fault is being looked for."""
        left = self.rows - self.next_row
        return min(self._header[_RUN_ROWS] or left, left)

    @property
    def output_bytes(self) -> int:
        """How many bytes of the outputs are in use."""
        return self._header[_OUTPUT_BYTES]

    @property
    def times_us(self) -> tuple[int, int, int]:
        """Unix times in µs: closed by the reader, first run started, last run ended."""
        header = self._header
        return header[_FILLED_US], header[_STARTED_US], header[_ENDED_US]

    @property
    def handed_s(self) -> float:
        """When it was last handed to a worker, in seconds of the monotonic clock."""
        return self._header[_HANDED_NS] / 1e9

    @property
    def deadline_ms(self) -> int:
        """The earliest deadline of its rows, 0 when none has one."""
        return self._header[_DEADLINE_MS]

    @property
    def signature(self) -> bytes:
        """The encoded layout of the inputs."""
        return bytes(self._signature[: self._header[_SIGNATURE_BYTES]])

    def fill(self, signature: bytes, rows: list[Row], placed: int) -> None:
        """Reader: describe what lies in the inputs; `placed` rows of them are filled."""
        table = _encode(rows)
        self._signature[: len(signature)] = signature
        self._table[: len(table)] = table
        deadline_ms = min((row.deadline_ms for row in rows if row.deadline_ms), default=0)
        lengths = (placed, len(signature), len(table), 0, 0, 0, 0, 0)
        for field, value in enumerate((*lengths, now_us(), 0, 0, time.monotonic_ns(), deadline_ms)):
            self._header[field] = value

    def handed_over(self) -> None:
        """Supervisor: it goes to another worker, whose time begins now."""
        self._header[_HANDED_NS] = time.monotonic_ns()

    def table(self) -> list[Row]:
        """Every record of the slot, refused ones too."""
        return _decode_rows(self._table[: self._header[_TABLE_BYTES]])

    def begin(self) -> None:
        """Worker: note when the first run starts."""
        if not self._header[_STARTED_US]:
            self._header[_STARTED_US] = now_us()

    def isolate(self, rows: int) -> None:
        """Take at most so many rows a run from now on, to find the one at fault; 0: all that are left."""
        self._header[_RUN_ROWS] = rows
        self._header[_DEATHS_ALONE] = 0

    def add(self, outcomes: Sequence[Outcome], next_row: int, output_bytes: int) -> None:
        """Worker: these rows are finished; the next run begins at `next_row`."""
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
        # Last: a worker killed before it leaves rows that run again, and not rows that nobody answers.
        header[_NEXT_ROW] = next_row

    def outcomes(self) -> list[Outcome]:
        """What has come of the rows so far."""
        found: list[Outcome] = []
        at, end = 0, self._header[_OUTCOME_BYTES]
        while at < end:
            size = int.from_bytes(self._outcomes[at : at + 4], "little")
            found.append(_decode_outcome(self._outcomes[at + 4 : at + 4 + size]))
            at += 4 + size
        return found

    def worker_died(self, error: tuple[str, str], detail: str = "") -> None:
        """Supervisor: the worker died in a run. Halve the runs; a row that was alone twice gets the error."""
        running = self.run_rows
        if running > 1:
            self.isolate(running // 2)
            return
        self._header[_DEATHS_ALONE] += 1
        # Once may be the kernel or an operator that killed the worker; twice is the record.
        if running == 1 and self._header[_DEATHS_ALONE] > 1:
            outcome = Outcome([self.next_row], error=error, detail=cut_detail(detail))
            self.add([outcome], self.next_row + 1, self.output_bytes)
            self.isolate(0)


def cut(message: str) -> str:
    """The message, cut to `LARGEST_MESSAGE` bytes of UTF-8."""
    return message.encode(errors="replace")[:LARGEST_MESSAGE].decode(errors="ignore")


def cut_detail(detail: str) -> str:
    """The end of a traceback or dump, which tells most, cut to `LARGEST_DETAIL` bytes of UTF-8."""
    return detail.encode(errors="replace")[-LARGEST_DETAIL:].decode(errors="ignore")


def now_us() -> int:
    """Unix time in µs."""
    return time.time_ns() // 1000


def array_at(area: memoryview, dtype: str, shape: tuple[int, ...], offset: int) -> NDArray[Any]:
    """An array that is a view of an area of a slot."""
    return np.ndarray(shape, dtype, area, offset)
