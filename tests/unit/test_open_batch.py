"""A batch that is being filled."""

import numpy as np
import pytest

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.processing.model_input import Content
from cluster_serving.node.reader.columns import Columns
from cluster_serving.node.reader.decoding import Record
from cluster_serving.node.reader.open_batch import OpenBatch
from cluster_serving.node.ring.input_layout import Signature, decode_layout, plan
from cluster_serving.node.ring.slot import BY_ORDER, LARGEST_MESSAGE, ORIGINAL, Geometry, Row, Slot, array_at, cut
from cluster_serving.node.ring.traceparent import MAX_TRACEPARENT_BYTES

GEOMETRY = Geometry(slots=1, batch=4, slot_bytes=4096, workers=1)
PAIR: Signature = (("tensor", "<f4", (3,)), ("tensor", "|u1", (2,)))
MIXED: Signature = (("image", "", ()), ("tensor", "<f4", (3,)), ("string", "", ()))


def begin(signature: Signature, geometry: Geometry = GEOMETRY) -> tuple[Slot, OpenBatch]:
    slot = Slot(memoryview(bytearray(geometry.slot_stride)), geometry)
    return slot, OpenBatch(
        7, slot, plan(signature, geometry.batch, geometry.slot_bytes), geometry, 12.5, geometry.batch
    )


def floats(*values: float) -> memoryview:
    return memoryview(np.array(values, np.float32).tobytes())


def refused(message: str, uri: bytes = b"bad", reply: bytes = b"", traceparent: bytes = b"") -> Record:
    return Record(uri, reply, 0, (), (), (ErrorCode.INVALID_INPUT, message), 0, traceparent)


def test_rows_lie_in_one_array_for_each_input() -> None:
    slot, open_batch = begin(PAIR)

    open_batch.add(b"1-0", Record(b"a", b"", 0, PAIR, [floats(1, 2, 3), b"\x01\x02"]))
    open_batch.add(b"1-1", Record(b"b", b"r", ORIGINAL, PAIR, [floats(4, 5, 6), b"\x03\x04"]))
    open_batch.close()

    layout = decode_layout(slot.signature)
    first, second = layout.inputs
    assert array_at(slot.inputs, "<f4", (2, 3), first.offset).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert array_at(slot.inputs, "|u1", (2, 2), second.offset).tolist() == [[1, 2], [3, 4]]
    assert slot.table() == [Row(b"1-0", b"a", b"", 0, 0), Row(b"1-1", b"b", b"r", ORIGINAL, 1)]
    assert slot.rows == 2


def test_contents_of_variable_length_lie_in_the_heap() -> None:
    slot, open_batch = begin(MIXED)

    open_batch.add(b"1-0", Record(b"a", b"", 0, MIXED, [b"image one", floats(1, 2, 3), b'"text"']))
    open_batch.add(b"1-1", Record(b"b", b"", 0, MIXED, [b"", floats(4, 5, 6), b'"more text"']))
    open_batch.close()

    spans = [[bytes(slot.inputs[at : at + size]) for at, size in row.spans] for row in slot.table()]
    assert spans == [[b"image one", b'"text"'], [b"", b'"more text"']]
    place = decode_layout(slot.signature).inputs[1]
    assert array_at(slot.inputs, "<f4", (2, 3), place.offset).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_rows_keep_their_deadlines_and_traces() -> None:
    slot, open_batch = begin(PAIR)

    open_batch.add(b"1-0", Record(b"a", b"", 0, PAIR, [floats(1, 2, 3), b"\x01\x02"], None, 17, b"00-a"))
    open_batch.refuse(b"1-1", refused("why", traceparent=b"00-b"))
    open_batch.close()

    assert [(row.deadline_ms, row.traceparent) for row in slot.table()] == [(17, b"00-a"), (0, b"00-b")]


def test_an_empty_one_knows_when_it_was_opened() -> None:
    _, open_batch = begin(PAIR)

    assert (open_batch.index, open_batch.opened_ms, open_batch.ids) == (7, 12.5, [])
    assert not open_batch.full


def test_full_at_the_batch_size() -> None:
    _, open_batch = begin(PAIR)

    for n in range(4):
        assert not open_batch.full
        open_batch.add(b"1-%d" % n, Record(b"u", b"", 0, PAIR, [floats(1, 2, 3), b"ab"]))

    assert open_batch.full
    assert open_batch.ids == [b"1-0", b"1-1", b"1-2", b"1-3"]


def test_full_when_the_slot_holds_no_further_row() -> None:
    large: Signature = (("tensor", "<f4", (400,)),)
    _, open_batch = begin(large)

    open_batch.add(b"1-0", Record(b"u", b"", 0, large, [floats(*range(400))]))
    assert not open_batch.full
    open_batch.add(b"1-1", Record(b"u", b"", 0, large, [floats(*range(400))]))

    assert open_batch.full


def test_a_content_fits_while_the_heap_has_room() -> None:
    image: Signature = (("image", "", ()),)
    slot, open_batch = begin(image)
    assert open_batch.fits([bytes(4096)])
    assert not open_batch.fits([bytes(4097)])

    open_batch.add(b"1-0", Record(b"u", b"", 0, image, [b"x" * 4000]))

    assert open_batch.fits([bytes(96)])
    assert not open_batch.fits([bytes(97)])
    open_batch.add(b"1-1", Record(b"u", b"", 0, image, [b"y" * 96]))
    open_batch.close()
    assert bytes(slot.inputs) == b"x" * 4000 + b"y" * 96


def test_tensors_always_fit() -> None:
    _, open_batch = begin(PAIR)

    assert open_batch.fits([floats(1, 2, 3), b"ab"])


def test_a_refused_record_takes_no_row() -> None:
    slot, open_batch = begin(PAIR)

    open_batch.refuse(b"1-0", refused("why", reply=b"r"))
    open_batch.add(b"1-1", Record(b"good", b"", 0, PAIR, [floats(1, 2, 3), b"ab"]))
    open_batch.close()

    error = (ErrorCode.INVALID_INPUT.value, "why")
    assert slot.table() == [Row(b"1-0", b"bad", b"r", 0, -1, [], error), Row(b"1-1", b"good", b"", 0, 0)]
    assert slot.rows == 1
    assert open_batch.ids == [b"1-0", b"1-1"]


def test_refused_records_fill_a_batch_too() -> None:
    _, open_batch = begin(())

    for n in range(4):
        assert not open_batch.full
        open_batch.refuse(b"1-%d" % n, refused("why"))

    assert open_batch.full


@pytest.mark.parametrize("message", ["x" * LARGEST_MESSAGE, cut("\N{SNOWMAN}" * LARGEST_MESSAGE)])
@pytest.mark.parametrize("batch", [1, 8, 32, 500])
def test_the_largest_entries_never_outgrow_the_row_table(batch: int, message: str) -> None:
    """It says that it is full before another one could be too much."""
    geometry = Geometry(slots=1, batch=batch, slot_bytes=4096, workers=1)
    slot, open_batch = begin((), geometry)
    largest = b"x" * 4096

    count = 0
    while not open_batch.full:
        open_batch.refuse(
            b"18446744073709551615-%d" % count, refused(message, largest, largest, b"t" * MAX_TRACEPARENT_BYTES)
        )
        count += 1
    open_batch.close()

    assert len(slot.table()) == count
    assert all(row.error == (ErrorCode.INVALID_INPUT.value, message) for row in slot.table())


def test_many_contents_a_row_never_outgrow_the_row_table() -> None:
    texts: Signature = (("string", "", ()),) * 400
    geometry = Geometry(slots=1, batch=32, slot_bytes=1 << 20, workers=1)
    slot, open_batch = begin(texts, geometry)

    count = 0
    while not open_batch.full:
        open_batch.add(b"1-%d" % count, Record(b"u", b"", 0, texts, [b'"some text"'] * 400))
        count += 1
    open_batch.close()

    assert [len(row.spans) for row in slot.table()] == [400] * count


def alike(count: int, uri: bytes = b"u") -> tuple[list[bytes], Columns]:
    """So many records of a PAIR, and their ids."""
    contents: list[list[Content]] = [[floats(n, n, n) for n in range(count)], [bytes([n, n]) for n in range(count)]]
    uris, replies, traceparents = [uri + b"%d" % n for n in range(count)], [b"r"] * count, [b"00-t"] * count
    return [b"1-%d" % n for n in range(count)], Columns(
        uris, replies, PAIR, contents, list(range(count)), traceparents, flags=BY_ORDER
    )


def test_records_that_are_alike_lie_as_they_do_one_by_one() -> None:
    ids, records = alike(3)
    (together, open_batch), (apart, one_by_one) = begin(PAIR), begin(PAIR)
    uris, replies, _, contents, deadlines_ms, traceparents, flags = records

    assert open_batch.add_alike(ids, records, 0, 7, [1, 2, 3]) == 3

    for n, entry_id in enumerate(ids):
        row = [column[n] for column in contents]
        one_by_one.add(
            entry_id, Record(uris[n], replies[n], flags, PAIR, row, None, deadlines_ms[n], traceparents[n]), 7, n + 1
        )
    open_batch.close()
    one_by_one.close()
    assert together.table() == apart.table()
    assert bytes(together.inputs) == bytes(apart.inputs)
    assert (together.rows, together.deadline_ms) == (apart.rows, apart.deadline_ms)


def test_records_that_are_alike_come_from_where_the_last_batch_ended() -> None:
    ids, records = alike(9)
    (_, first), (slot, second) = begin(PAIR), begin(PAIR)
    first.add(b"0-1", Record(b"a", b"", 0, PAIR, [floats(1, 2, 3), b"ab"]))

    assert first.add_alike(ids, records, 0, 0, [1] * 9) == 3
    assert first.full
    assert second.add_alike(ids, records, 3, 0, [1] * 9) == 4

    second.close()
    layout = decode_layout(slot.signature)
    assert array_at(slot.inputs, "<f4", (4, 3), layout.inputs[0].offset).tolist() == [[n] * 3 for n in range(3, 7)]
    assert [(row.id, row.place) for row in slot.table()] == [(b"1-%d" % (n + 3), n) for n in range(4)]


def test_records_that_are_alike_never_outgrow_the_row_table() -> None:
    """Records for which the row table could be too small are left for `add`."""
    ids, records = alike(4, uri=b"x" * 4000)
    _, open_batch = begin(PAIR)

    assert open_batch.add_alike(ids, records, 0, 0, [1] * 4) == 0
    assert (open_batch.ids, open_batch.full) == ([], False)


def test_an_input_of_hundreds_of_columns_has_a_signature() -> None:
    wide: Signature = (("tensor", "<f4", (1, 1)),) * 1000
    geometry = Geometry(slots=1, batch=4, slot_bytes=1 << 20, workers=1)
    slot, open_batch = begin(wide, geometry)

    open_batch.add(b"1-0", Record(b"u", b"", 0, wide, [floats(n) for n in range(1000)]))
    open_batch.close()

    assert len(decode_layout(slot.signature).inputs) == 1000
