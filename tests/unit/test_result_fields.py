"""Step 2 of the writer: from the outcomes of a slot to the fields that clients read."""

import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from cluster_serving.client import keys
from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.protocol.results import plain, result_of
from cluster_serving.client.wire.original.result import decode_result as decode_original
from cluster_serving.client.wire.receipt import Receipt
from cluster_serving.client.wire.reply import Reply
from cluster_serving.client.wire.result import decode_result, unpack_result
from cluster_serving.node.ring.slot import (
    BATCHED,
    BY_ORDER,
    LEGACY,
    ORIGINAL,
    Geometry,
    Outcome,
    Row,
    Slot,
    StoredOutput,
    array_at,
    now_us,
)
from support.published import answers_of, receipt_of, results_of

GEOMETRY = Geometry(slots=1, batch=8, slot_bytes=4096, workers=1)
ERROR = (ErrorCode.INFERENCE_FAILED.value, "it failed")


def new_slot(*rows: Row) -> Slot:
    slot = Slot(memoryview(bytearray(GEOMETRY.slot_stride)), GEOMETRY)
    slot.fill(b"", list(rows), sum(row.place >= 0 for row in rows))
    slot.begin()
    return slot


def row(place: int, flags: int = 0, reply: bytes = b"", error: tuple[str, str] | None = None) -> Row:
    return Row(b"5-%d" % (place + 1), b"uri %d" % place, reply, flags, place, [], error)


def place(slot: Slot, **outputs: NDArray[Any]) -> list[StoredOutput]:
    """Outputs as a worker stores them."""
    placed: list[StoredOutput] = []
    at = 0
    for name, array in outputs.items():
        array_at(slot.outputs, array.dtype.str, array.shape, at)[...] = array
        placed.append(StoredOutput(name, array.dtype.str, array.shape[1:], at))
        at += -(-array.nbytes // 64) * 64
    return placed


def receipts_of(slot: Slot) -> list[Receipt]:
    receipts = [result.receipt for result in results_of(slot)]
    assert None not in receipts
    return [receipt for receipt in receipts if receipt is not None]


def fields_of(slot: Slot, **options: Any) -> list[list[bytes]]:
    return [answer.fields for answer in answers_of(slot, **options)]


def assert_same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "uint64", "bool"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,), (3, 0, 2)])
def test_native_rows_get_arrays_of_their_own(dtype: str, shape: tuple[int, ...]) -> None:
    slot = new_slot(row(0), row(1), row(2))
    output = np.random.default_rng(7).integers(0, 2, (3, *shape)).astype(dtype)
    slot.add([Outcome([0, 1, 2], outputs=place(slot, y=output))], 3, 0)

    results = results_of(slot)

    for result, expected in zip(results, output, strict=True):
        assert result.outputs.keys() == {"y"}
        assert_same(result.outputs["y"], expected)


def test_several_outputs_keep_the_models_order() -> None:
    slot = new_slot(row(0), row(1))
    outputs = {"z": np.arange(4.0).reshape(2, 2), "a": np.array([7, 8]), "m": np.array([True, False])}
    slot.add([Outcome([0, 1], outputs=place(slot, **outputs))], 2, 0)

    for index, fields in enumerate(fields_of(slot)):
        names, values = fields[::2], fields[1::2]
        shuffled = [part for pair in reversed(list(zip(names, values, strict=True))) for part in pair]
        result = decode_result("u", shuffled)

        assert list(result.outputs) == ["z", "a", "m"]
        for name, array in outputs.items():
            assert_same(result.outputs[name], np.asarray(array[index]))


def test_a_result_that_redis_would_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cluster_serving.node.writer.fields._MOST_BYTES", 1000)
    slot = new_slot(row(0), row(1))
    large, small = place(slot, large=np.zeros((1, 300)), small=np.zeros((1, 10)))
    slot.add([Outcome([0], outputs=[large]), Outcome([1], outputs=[small])], 2, 2500)

    failed, good = results_of(slot)

    assert failed.error is not None
    code, reason = failed.error
    assert code == ErrorCode.RESULT_TOO_LARGE
    assert reason.endswith("bytes, and Redis takes at most 1000")
    assert good.outputs["small"].shape == (10,)


def test_rows_that_ran_apart_meet_their_own_results() -> None:
    slot = new_slot(*map(row, range(4)))
    (placed,) = place(slot, y=np.array([[10.0], [12.0]]))
    slot.outputs[1000:1016] = np.array([13.0, 11.0]).tobytes()
    apart = StoredOutput("y", "<f8", (1,), 1000)
    slot.add([Outcome([0, 2], outputs=[placed]), Outcome([3, 1], outputs=[apart])], 4, 0)

    assert [result.outputs["y"].tolist() for result in results_of(slot)] == [[10], [11], [12], [13]]


def test_the_batch_dimension_comes_back_to_those_who_sent_one() -> None:
    slot = new_slot(row(0), row(1, BATCHED), row(2, BATCHED | ORIGINAL))
    output = np.arange(6, dtype=np.float32).reshape(3, 2)
    slot.add([Outcome([0, 1, 2], outputs=place(slot, y=output))], 3, 0)

    plain, batched, original = fields_of(slot)

    assert_same(decode_result("u", plain).outputs["y"], output[0])
    assert_same(decode_result("u", batched).outputs["y"], output[1:2])
    found = decode_original(dict(zip(original[::2], original[1::2], strict=True))[b"value"])
    assert isinstance(found, np.ndarray)
    assert_same(found, output[2:3])


def test_rows_that_were_bound_by_order_say_so() -> None:
    rows = row(0), row(1, BY_ORDER), row(2, BY_ORDER, b"reply"), row(3, BY_ORDER | BATCHED), row(4, BY_ORDER | ORIGINAL)
    slot = new_slot(*rows)
    slot.add([Outcome([0, 1, 2, 3, 4], outputs=place(slot, y=np.arange(10.0).reshape(5, 2)))], 5, 0)

    by_hash, ordered, (uri, packed), batched, original = fields_of(slot)

    results = [decode_result("u", fields) for fields in (by_hash, ordered, batched)]
    results.append(Reply(uri, packed, receipt_of(slot).encode()).result())
    assert [result.receipt.bound for result in results if result.receipt] == ["", "order", "order", "order"]
    assert [result.outputs["y"].tolist() for result in results] == [[0, 1], [2, 3], [[6, 7]], [4, 5]]
    assert b"bound" not in original


def test_bools_of_uncommon_rows_are_bools() -> None:
    slot = new_slot(row(0, BATCHED))
    slot.add([Outcome([0], outputs=place(slot, y=np.array([[True, False]])))], 1, 0)

    (result,) = results_of(slot)

    assert_same(result.outputs["y"], np.array([[True, False]]))


def test_original_rows_get_value_and_nothing_else() -> None:
    slot = new_slot(row(0, ORIGINAL), row(1))
    outputs: dict[str, NDArray[Any]] = {"y": np.array([[1, 2], [3, 4]], np.float32), "t": np.array([5, 6], np.int64)}
    slot.add([Outcome([0, 1], outputs=place(slot, **outputs))], 2, 0)

    original, native = fields_of(slot)

    assert original[::2] == [b"value"]
    found = decode_original(original[1])
    assert [np.asarray(array).tolist() for array in found] == [[1, 2], 5]
    assert decode_result("u", native).outputs["y"].tolist() == [3, 4]


def put(slot: Slot, *contents: bytes) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    at = 2048
    for content in contents:
        slot.outputs[at : at + len(content)] = content
        spans.append((at, len(content)))
        at += len(content)
    return spans


def test_values_are_the_same_json_in_both_dialects() -> None:
    slot = new_slot(row(0), row(1, ORIGINAL))
    slot.add([Outcome([0, 1], values=put(slot, b'{"name":"cat"}', b"[1,2]"))], 2, 0)

    for legacy in (False, True):
        native, original = fields_of(slot, legacy_filter_text=legacy)

        assert decode_result("u", native).value == {"name": "cat"}
        assert original == [b"value", b"[1,2]"]


@pytest.mark.parametrize(
    ("filtered", "json_text", "legacy_text"),
    [
        ([[4, 5.0], [3, 4.0]], "[[4,5.0],[3,4.0]]", "[[4,5.0][3,4.0]]"),
        ([[2.0, 2.0]], "[[2.0,2.0]]", "[[2.0,2.0]]"),
        ([[0, math.inf], [1, -math.inf], [2, math.nan]], "[[0,null],[1,null],[2,null]]", None),
        ([[7, 0.5, "a cat"], [9, 0.25, None]], '[[7,0.5,"a cat"],[9,0.25,null]]', "[[7,0.5][9,0.25]]"),
        (
            {"b": [[1, 0.5]], "a": [[0, 2.0], [1, 1.0]]},
            '{"b":[[1,0.5]],"a":[[0,2.0],[1,1.0]]}',
            "[[1,0.5]][[0,2.0][1,1.0]]",
        ),
        ([[[1, 0.5]], [[0, 2.0]]], "[[[1,0.5]],[[0,2.0]]]", "[[1,0.5]][[0,2.0]]"),
        ([{"a": [[1, 0.5]], "b": []}], '[{"a":[[1,0.5]],"b":[]}]', "[[1,0.5]][]"),
        ([], "[]", "[]"),
    ],
)
def test_a_filters_value_is_json_or_the_originals_text(filtered: Any, json_text: str, legacy_text: str | None) -> None:
    legacy_text = legacy_text or "[[0,Infinity][1,-Infinity][2,NaN]]"
    packed = msgspec.msgpack.encode(filtered)
    slot = new_slot(row(0), row(1, ORIGINAL))
    slot.add([Outcome([0, 1], filtered=put(slot, packed, packed))], 2, 0)

    for legacy, expected in ((False, json_text), (True, legacy_text)):
        native, original = fields_of(slot, legacy_filter_text=legacy)

        assert native[:2] == [b"value", json_text.encode()]
        assert original == [b"value", expected.encode()]


def test_a_filters_value_of_several_rows_is_read_in_either_text() -> None:
    for text in (b"[[4,5.0],[3,4.0]]", b"[[4,5.0][3,4.0]]"):
        assert result_of([b"value", text], "u").value == [[4, 5.0], [3, 4.0]]


def text_of(slot: Slot, *texts: Any) -> StoredOutput:
    return StoredOutput("t", "str", spans=put(slot, *(json.dumps(text).encode() for text in texts)))


@pytest.mark.parametrize("texts", [("ü", "b"), (["a", "b"], ["c", "d"]), ([], [["x"]])])
def test_text_comes_back_as_text(texts: tuple[Any, Any]) -> None:
    slot = new_slot(row(0), row(1, BATCHED))
    slot.add([Outcome([0, 1], outputs=[text_of(slot, *texts)])], 2, 0)

    plain_row, batched = results_of(slot)

    assert plain_row.outputs == {"t": texts[0]}
    assert plain(plain_row) == texts[0]
    assert batched.outputs == {"t": [texts[1]]}


def test_text_and_tensors_keep_the_models_order() -> None:
    slot = new_slot(row(0))
    arrays = place(slot, z=np.array([[1.0, 2.0]]), a=np.array([True]))
    slot.add([Outcome([0], outputs=[arrays[0], text_of(slot, "x"), arrays[1]])], 1, 0)

    (fields,) = fields_of(slot)
    pairs = list(zip(fields[::2], fields[1::2], strict=True))
    result = decode_result("u", [part for pair in reversed(pairs) for part in pair])

    assert list(result.outputs) == ["z", "t", "a"]
    assert result.receipt is not None
    assert result.receipt.outputs == ["z", "t", "a"]
    assert [value.tolist() if name != "t" else value for name, value in result.outputs.items()] == [[1, 2], "x", True]


def test_text_fails_in_the_original_dialect_and_there_alone() -> None:
    slot = new_slot(row(0), row(1, ORIGINAL), row(2))
    slot.add([Outcome([0, 1, 2], outputs=[*place(slot, y=np.zeros((3, 1))), text_of(slot, "a", "b", "c")])], 3, 0)

    first, original, third = fields_of(slot)

    assert original[:2] == [b"value", b"NaN"]
    assert result_of(original, "u").error == (
        ErrorCode.INFERENCE_FAILED,
        "output 't' is text, which cannot be sent in the original dialect",
    )
    assert [decode_result("u", fields).outputs["t"] for fields in (first, third)] == ["a", "c"]


@pytest.mark.parametrize("flags", [0, ORIGINAL])
def test_a_whole_batch_is_answered_as_it_is(flags: int) -> None:
    slot = new_slot(row(0, flags))
    batch = np.arange(14, dtype=np.float32).reshape(7, 2)
    slot.add([Outcome([0], outputs=place(slot, y=batch[np.newaxis]))], 1, 0)

    (fields,) = fields_of(slot)

    assert_same(plain(result_of(fields, "u")), batch)


def test_rows_with_different_outputs_have_receipts_of_their_own() -> None:
    slot = new_slot(row(0), row(1), row(2))
    first = place(slot, a=np.zeros((1, 1)), b=np.zeros((1, 1)))
    slot.add(
        [
            Outcome([0], outputs=first),
            Outcome([1], outputs=[StoredOutput("c", "<f8", (), 0), StoredOutput("d", "<f8", (), 0)]),
            Outcome([2], error=ERROR),
        ],
        3,
        0,
    )

    results = results_of(slot)

    assert [list(result.outputs) for result in results] == [["a", "b"], ["c", "d"], []]
    assert [list(receipt.outputs) for receipt in receipts_of(slot)] == [["a", "b"], ["c", "d"], []]


def test_what_cannot_be_encoded_fails_alone() -> None:
    slot = new_slot(row(0), row(1, ORIGINAL), row(2))
    bad = StoredOutput("y", "<c8", (1,), 0)
    slot.add([Outcome([0, 1], outputs=[bad]), Outcome([2], outputs=place(slot, y=np.ones((1, 1))))], 3, 0)

    native, original, good = fields_of(slot)

    assert [answer.failed for answer in answers_of(slot)] == [True, True, False]
    assert decode_result("u", native).error is not None
    assert result_of(original, "u").error is not None
    assert decode_result("u", good).error is None


def test_errors_of_the_worker_and_of_the_reader() -> None:
    refused = (ErrorCode.INVALID_INPUT.value, 'no "good"')
    slot = new_slot(row(0), row(1, ORIGINAL), row(-1, error=refused), row(-1, ORIGINAL, error=refused))
    slot.add([Outcome([0, 1], error=ERROR)], 2, 0)

    failed, failed_original, bad, bad_original = fields_of(slot)

    assert decode_result("u", failed).error == ERROR
    assert failed_original[:2] == [b"value", b"NaN"]
    assert failed_original[::2] == [b"value", b"error"]
    assert result_of(failed_original, "u").error == ERROR
    assert decode_result("u", bad).error == refused
    assert result_of(bad_original, "u").error == refused


def test_a_reply_holds_the_same_fields_packed() -> None:
    slot = new_slot(row(0), row(1, reply=b"cluster-serving.reply_job:c"))
    slot.add([Outcome([0, 1], outputs=place(slot, y=np.ones((2, 1))))], 2, 0)

    in_hash, in_reply = fields_of(slot)

    assert in_reply[0] == b"uri 1"
    assert Reply(b"", in_reply[1], b"{}").unpack()[0] == in_hash[:2]


def test_a_result_for_later_is_that_of_a_hash_packed() -> None:
    later = keys.later_key("job", "0a").encode()
    slot = new_slot(row(0), row(1, reply=later), row(-1, reply=later, error=ERROR))
    slot.add([Outcome([0, 1], outputs=place(slot, y=np.ones((2, 1)), z=np.ones((2, 1))))], 2, 0)

    in_hash, (uri, packed), (_, failed) = fields_of(slot)

    assert uri == b"uri 1"
    expected, found = decode_result("u", in_hash), unpack_result("u", packed)
    assert [*found.outputs] == [*expected.outputs] == ["y", "z"]
    assert found.receipt is not None
    assert unpack_result("u", failed).error == ERROR
    assert unpack_result("u", b"\x92\x01").error is not None


def test_native_receipts_say_how_it_went() -> None:
    slot = new_slot(row(0), row(1, ORIGINAL), row(-1, error=ERROR))
    slot.add([Outcome([0, 1], outputs=place(slot, y=np.zeros((2, 1))))], 2, 0)

    native, original, refused = fields_of(slot)

    filled_us, started_us, ended_us = slot.times_us
    assert native[-2] == b"receipt"
    assert decode_result("u", native).receipt == Receipt(
        entry="5-1",
        read_ms=0,
        node="node-1",
        model="sha256:12",
        ttl_ms=60_000,
        worker=3,
        batch=2,
        filled_ms=filled_us / 1000,
        wait_ms=(started_us - filled_us) / 1000,
        run_ms=(ended_us - started_us) / 1000,
        publish_ms=0,
    )
    assert b"receipt" not in original
    assert json.loads(refused[-1])["entry"] == "5-0"


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, 1_700_000_000_000])
def test_the_stages_of_a_receipt_are_on_the_clock_of_redis_and_sum_to_the_total(ahead_ms: int) -> None:
    read_us = now_us()
    enqueued_ms = read_us // 1000 + ahead_ms - 40
    rows = [Row(b"%d-0" % enqueued_ms, b"u", b"", 0, 0, read_us=read_us)]
    slot = new_slot(*rows)
    slot.add([Outcome([0], outputs=place(slot, y=np.zeros((1, 1))))], 1, 0)
    filled, started, ended = slot.times_us
    now_ms = ended / 1000 + ahead_ms + 7

    (fields,) = fields_of(slot, now_ms=now_ms, clock_offset_ms=ahead_ms)

    stages = decode_result("u", fields).stages
    assert list(stages) == ["stream", "fill", "wait", "run", "publish"]
    assert sum(stages.values()) == pytest.approx(now_ms - enqueued_ms, abs=0.01)
    assert 40 <= stages["stream"] < 41.01
    assert stages["fill"] == pytest.approx((filled - read_us) / 1000, abs=0.01)
    assert (stages["wait"], stages["run"]) == ((started - filled) / 1000, (ended - started) / 1000)
    assert stages["publish"] == pytest.approx(7, abs=0.01)


def test_each_record_of_a_batch_says_when_it_was_read_and_whether_it_came_again() -> None:
    given = [(1_000_000, 1), (1_000_000, 1), (2_000_500, 1), (2_000_500, 3)]
    slot = new_slot(*(Row(b"1-%d" % n, b"u", b"", 0, n, [], None, 0, b"", *each) for n, each in enumerate(given)))
    slot.add([Outcome([0, 1, 2, 3], outputs=place(slot, y=np.zeros((4, 1))))], 4, 0)

    receipts = receipts_of(slot)

    assert [receipt.read_ms for receipt in receipts] == [1000, 1000, 2000.5, 2000.5]
    assert [receipt.deliveries for receipt in receipts] == [1, 1, 1, 3]


def test_a_batch_of_refused_records_never_ran() -> None:
    slot = Slot(memoryview(bytearray(GEOMETRY.slot_stride)), GEOMETRY)
    slot.fill(b"", [row(-1, error=ERROR)], 0)

    (receipt,) = receipts_of(slot)

    assert (receipt.wait_ms, receipt.run_ms, receipt.batch) == (0, 0, 0)


def test_names_are_written_as_json() -> None:
    slot = new_slot(row(0))
    slot.add([Outcome([0], outputs=place(slot, **{'q"': np.zeros((1, 1)), "ü": np.zeros((1, 1))}))], 1, 0)

    (fields,) = fields_of(slot, node='no"de')

    result = decode_result("u", fields)
    assert list(result.outputs) == ['q"', "ü"]
    assert result.receipt is not None
    assert result.receipt.node == 'no"de'


def test_results_of_clients_before_0_9_are_text() -> None:
    slot = new_slot(row(0, ORIGINAL | LEGACY), row(1, ORIGINAL | LEGACY), row(2, ORIGINAL | LEGACY))
    packed = msgspec.msgpack.encode([[292, 0.875], [7, 1e-4]])
    outputs = place(slot, y=np.array([[[0.1, 2], [3, 1e8]]], np.float32), z=np.array([7], np.int64))
    slot.add([Outcome([0], filtered=put(slot, packed)), Outcome([1], outputs=outputs), Outcome([2], error=ERROR)], 3, 0)

    before = fields_of(slot, legacy="0.7")
    after = fields_of(slot, legacy="0.8")

    assert [fields[:2] for fields in before] == [
        [keys.VALUE, b'{"292":"0.875","7":"1.0E-4"}'],
        [keys.VALUE, b"[[0.1,2.0],[3.0,1.0E8]]7.0"],
        [keys.VALUE, b"NaN"],
    ]
    assert after[0] == [keys.VALUE, b"[[292,0.875],[7,0.0001]]"]
    assert after[1:] == before[1:]
    assert fields_of(slot, legacy="0.8", legacy_filter_text=True)[0] == [keys.VALUE, b"[[292,0.875][7,1.0E-4]]"]
