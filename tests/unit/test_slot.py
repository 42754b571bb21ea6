"""A slot: what is written comes back, no area reaches into another, and a fatal record gets its error."""

import pytest

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.ring.isolation import Progress
from cluster_serving.node.ring.slot import (
    BATCHED,
    LARGEST_DETAIL,
    LARGEST_MESSAGE,
    LARGEST_OUTCOME,
    LARGEST_ROW_ENTRY,
    ORIGINAL,
    SIGNATURE_BYTES,
    Geometry,
    Outcome,
    OutcomesFullError,
    Row,
    Slot,
    StoredOutput,
    areas,
    array_at,
    cut,
    paged,
)
from cluster_serving.node.ring.traceparent import MAX_TRACEPARENT_BYTES

GEOMETRY = Geometry(slots=1, batch=8, slot_bytes=5000, workers=1)
DIED = (ErrorCode.WORKER_DIED.value, "killed")


def new_slot(geometry: Geometry = GEOMETRY) -> Slot:
    return Slot(memoryview(bytearray(geometry.slot_stride)), geometry)


def filled(rows: int) -> Slot:
    slot = new_slot()
    slot.fill(b"layout", [Row(b"%d-0" % n, b"u%d" % n, b"", 0, n) for n in range(rows)], rows)
    return slot


@pytest.mark.parametrize(("size", "pages"), [(0, 0), (1, 1), (4096, 1), (4097, 2)])
def test_whole_pages(size: int, pages: int) -> None:
    assert paged(size) == pages * 4096


def test_areas_begin_on_pages() -> None:
    memory = memoryview(bytearray(b"a" * 4096 + b"b" * 8192 + b"c" * 4096))

    assert [bytes(area) for area in areas(memory, (4096, 4097, 0, 3))] == [b"a" * 4096, b"b" * 4097, b"", b"ccc"]


def test_what_the_reader_writes_comes_back() -> None:
    slot = new_slot()
    rows = [
        Row(b"1-0", b"plain", b"", 0, 0),
        Row(b"1-1", b"\xff\x00", b"reply", ORIGINAL | BATCHED, 1, [(0, 5), (2**40, 2**33)]),
        Row(b"1-2", b"bad", b"", 0, -1, [], (ErrorCode.INVALID_INPUT.value, "why ü")),
        Row(b"1-3", b"traced", b"", 0, 2, [], None, 2**53, b"00-\xff"),
    ]

    slot.fill(b"signature", rows, 3)

    assert slot.table() == rows
    assert (slot.rows, slot.progress, slot.output_bytes) == (3, Progress(3), 0)
    assert slot.signature == b"signature"
    assert slot.outcomes() == []


def test_what_the_worker_writes_comes_back() -> None:
    slot = filled(5)
    text = StoredOutput("t", "str", spans=[(140, 3), (143, 2**33)])
    first = Outcome([0, 1], outputs=[StoredOutput("y", "<f4", (3, 1), 64), StoredOutput("z", "|b1", (), 128), text])
    second, third = Outcome([2], values=[(200, 17)]), Outcome([3], error=("code", "message"))
    fourth = Outcome([4], filtered=[(217, 9)])

    slot.begin()
    slot.add([first], 2, 192)
    assert (slot.progress, slot.output_bytes) == (Progress(5, 2), 192)
    slot.add([second, third, fourth], 5, 226)

    assert slot.outcomes() == [first, second, third, fourth]
    assert [placed.is_text for placed in slot.outcomes()[0].outputs] == [False, False, True]
    assert (slot.progress, slot.output_bytes) == (Progress(5, 5), 226)


def test_times_follow_each_other_and_the_first_start_counts() -> None:
    slot = filled(2)
    assert slot.times_us[1:] == (0, 0)

    slot.begin()
    started = slot.times_us[1]
    slot.add([Outcome([0], error=DIED)], 1, 0)
    slot.begin()

    filled_us, started_us, ended_us = slot.times_us
    assert filled_us <= started_us <= ended_us
    assert started_us == started


def test_a_slot_is_used_again_from_nothing() -> None:
    slot = filled(8)
    slot.begin()
    slot.add([Outcome([0], error=DIED)], 1, 99)
    slot.progress = Progress(8, 1, limit=1, deaths_alone=1)

    slot.fill(b"new", [Row(b"9-0", b"u", b"", 0, 0), Row(b"9-1", b"v", b"", 0, 1)], 2)

    assert (slot.rows, slot.progress, slot.output_bytes) == (2, Progress(2), 0)
    assert (slot.outcomes(), slot.times_us[1:]) == ([], (0, 0))


def test_progress_comes_back_and_outcomes_keep_the_limit() -> None:
    slot = filled(8)

    slot.progress = Progress(8, 3, limit=2, deaths_alone=1)
    assert slot.progress == Progress(8, 3, limit=2, deaths_alone=1)
    slot.add([Outcome([3], error=DIED)], 4, 0)

    assert slot.progress == Progress(8, 4, limit=2)


def test_a_culprit_gets_the_error_and_the_end_of_its_detail() -> None:
    slot = filled(8)
    slot.add([Outcome([0, 1], values=[(0, 1), (1, 1)])], 2, 2)
    slot.progress = Progress(8, 2, limit=1)

    slot.worker_died(DIED)
    assert len(slot.outcomes()) == 1
    slot.worker_died(DIED, "x" * LARGEST_DETAIL + "end")

    assert slot.outcomes()[1:] == [Outcome([2], error=DIED, detail="x" * (LARGEST_DETAIL - 3) + "end")]
    assert (slot.progress, slot.output_bytes) == (Progress(8, 3), 2)


@pytest.mark.parametrize("deaths", [1, 2, 3])
def test_a_worker_that_dies_with_nothing_left_to_run_changes_nothing(deaths: int) -> None:
    slot = filled(1)
    slot.add([Outcome([0], values=[(0, 0)])], 1, 0)

    for _ in range(deaths):
        slot.worker_died(DIED)

    assert slot.outcomes() == [Outcome([0], values=[(0, 0)])]


def test_room_is_made_for_the_rows_that_are_left() -> None:
    slot = filled(8)
    slot.begin()
    slot.add([Outcome([0, 1, 2], values=[(0, 1), (1, 1), (2, 1)])], 2, 3)
    assert slot.unfinished
    assert len(slot.table()) == 8, "nobody knows yet whether they are published"

    slot.make_room()

    assert [row.place for row in slot.table()] == [2, 3, 4, 5, 6, 7]
    assert (slot.outcomes(), slot.output_bytes, slot.progress) == ([], 0, Progress(8, 2))
    slot.add([Outcome([2, 3, 4, 5, 6, 7], error=DIED)], 8, 0)
    assert not slot.unfinished


@pytest.mark.parametrize("batch", [1, 2, 32, 1000])
def test_the_areas_hold_the_extremes_and_do_not_overlap(batch: int) -> None:
    """A table that `Filling` would still extend takes the largest entry; every row fails with the largest message."""
    geometry = Geometry(slots=1, batch=batch, slot_bytes=5000, workers=1)
    slot = new_slot(geometry)
    largest = b"x" * keys.MAX_URI_BYTES
    message = cut("\N{SNOWMAN}" * LARGEST_MESSAGE)
    entry = Row(b"18446744073709551615-18446744073709551615", largest, largest, 3, -1, [], ("InferenceFailed", message))
    small = Row(b"1-0", b"x" * 400, b"", 0, 0)
    table = [small] * batch + [entry]
    outcomes = [Outcome([row], error=("InferenceFailed", message)) for row in range(batch)]

    slot.inputs[:] = b"i" * len(slot.inputs)
    slot.outputs[:] = b"o" * len(slot.outputs)
    slot.fill(b"s" * SIGNATURE_BYTES, table, batch)
    slot.add(outcomes, batch, 5000)

    assert slot.signature == b"s" * SIGNATURE_BYTES
    assert slot.table() == table
    assert slot.outcomes() == outcomes
    assert bytes(slot.inputs) == b"i" * 5000
    assert bytes(slot.outputs) == b"o" * 5000
    assert (slot.rows, slot.output_bytes) == (batch, 5000)


def test_outcomes_without_room_change_nothing() -> None:
    geometry = Geometry(slots=1, batch=2, slot_bytes=4096, workers=1)
    slot = new_slot(geometry)
    slot.fill(b"", [Row(b"1-0", b"a", b"", 0, 0), Row(b"2-0", b"b", b"", 0, 1)], 2)
    large = Outcome([0], outputs=[StoredOutput("x" * 1000, "<f4")] * 60)

    with pytest.raises(OutcomesFullError) as full:
        slot.add([large, large], 2, 8)

    assert full.value.fitting == 1
    assert slot.outcomes() == []
    assert slot.progress.next_row == 0
    slot.add([large], 1, 8)
    assert slot.outcomes() == [large]


def test_the_largest_outcomes_of_all_rows_fit() -> None:
    slot = filled(8)
    name = "n" * (LARGEST_OUTCOME - 40)
    outcomes = [Outcome([row], outputs=[StoredOutput(name, "<f8", (1,), 2**33)]) for row in range(8)]

    slot.add(outcomes, 8, 0)

    assert not any(outcome.is_large for outcome in outcomes)
    assert slot.outcomes() == outcomes
    assert Outcome([0], outputs=[StoredOutput(name + "n" * 40, "<f8")]).is_large


def test_the_largest_entry_is_as_large_as_said() -> None:
    slot = new_slot()
    largest = b"x" * keys.MAX_URI_BYTES
    message = cut("\N{SNOWMAN}" * LARGEST_MESSAGE)
    traceparent = b"x" * MAX_TRACEPARENT_BYTES
    entry = Row(b"1-0", largest, largest, 3, -1, [], ("InferenceFailed", message), 10**17, traceparent)
    rest = LARGEST_ROW_ENTRY - 2 * keys.MAX_URI_BYTES - len(message.encode()) - len(traceparent)

    slot.fill(b"", [entry], 0)

    assert slot.table() == [entry]
    assert rest > 1000


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("short", "short"),
        ("x" * 5000, "x" * LARGEST_MESSAGE),
        ("ü" * 5000, "ü" * (LARGEST_MESSAGE // 2)),
        ("xü" * 5000, "xü" * (LARGEST_MESSAGE // 3) + "x"),
        ("lone \ud800", "lone ?"),
    ],
)
def test_messages_are_cut_by_bytes(message: str, expected: str) -> None:
    assert cut(message) == expected
    assert len(cut(message).encode()) <= LARGEST_MESSAGE


def test_arrays_are_views() -> None:
    slot = new_slot()

    array_at(slot.inputs, "<f4", (2, 3), 64)[...] = 7

    assert bytes(slot.inputs[60:92]) == bytes(4) + b"\x00\x00\xe0\x40" * 6 + bytes(4)
