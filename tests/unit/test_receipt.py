"""Stages of a receipt, which tell how the time of a record was spent, and their drawing by `trace`."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import BatchReceipt, SplitReceipt, decode_receipt
from cluster_serving.client.wire.result import Result
from cluster_serving.node.commands.trace_text import page

BATCH = BatchReceipt(
    node="web-1",
    model="sha256:0",
    ttl_ms=60_000,
    worker=2,
    batch=8,
    filled_ms=1763657000126,
    wait_ms=3.25,
    run_ms=40,
    publish_ms=0.25,
)
RECEIPT = BATCH.of_record(b"1763657000123-7", 1763657000125.5, 1)
FOUND: dict[str, Any] = {
    "job": "j",
    "uri": "a\x1b[31m",
    "error": None,
    "enqueued_ms": 1763657000123,
    "stages_ms": {"stream": 25.0, "fill": 0.0, "wait": 0.001, "run": 50.0, "publish": 24.999},
    "total_ms": 100.0,
    "entry": "1763657000123-7",
    "node": "web-1",
    "worker": 2,
    "model": "sha256:0",
    "batch": 8,
    "deliveries": 2,
}


@pytest.mark.parametrize(("deliveries", "outputs", "bound"), [(1, (), ""), (2, ["z", "a"], "order")])
def test_a_receipt_comes_back_from_a_hash(deliveries: int, outputs: Sequence[str], bound: str) -> None:
    receipt = BATCH.of_record(b"1763657000123-7", 1763657000125.5, deliveries, outputs, bound)

    encoded = receipt.encode()

    assert decode_receipt(encoded) == receipt
    assert json.loads(encoded).keys() >= json.loads(BATCH.encode()).keys() | {"entry", "read_ms"}
    present = [name in encoded for name in (b"deliveries", b"outputs", b"bound")]
    assert present == [deliveries > 1, bool(outputs), bool(bound)]


def test_a_receipt_comes_back_from_a_reply() -> None:
    split = SplitReceipt(b"1763657000123-7", 1763657000125.5, 3, BATCH.encode(), "order")

    assert split.joined() == BATCH.of_record(b"1763657000123-7", 1763657000125.5, 3, bound="order")


def test_the_stages_in_their_order() -> None:
    result = Result("u", {}, receipt=RECEIPT.encode())

    assert RECEIPT.enqueued_ms == 1763657000123
    assert list(result.stages.items()) == [
        ("stream", 2.5),
        ("fill", 0.5),
        ("wait", 3.25),
        ("run", 40),
        ("publish", 0.25),
    ]


def test_a_clock_that_was_set_makes_no_stage_negative() -> None:
    assert msgspec.structs.replace(RECEIPT, read_ms=1763657000100).stages["stream"] == 0
    assert msgspec.structs.replace(RECEIPT, filled_ms=1763657000100).stages["fill"] == 0


def test_no_receipt_has_no_stages() -> None:
    result = Result("u", {})

    assert (result.receipt, result.stages) == (None, {})


@pytest.mark.parametrize("name", ["entry", "read_ms", "filled_ms", "wait_ms", "run_ms", "publish_ms"])
@pytest.mark.parametrize("value", [None, "x", []])
def test_a_receipt_that_does_not_tell(name: str, value: Any) -> None:
    """Whatever it is, it is said and does no harm."""
    known: dict[str, Any] = json.loads(RECEIPT.encode())
    for receipt in (known | {name: value}, {each: known[each] for each in known if each != name}):
        result = Result("u", {}, receipt=json.dumps(receipt).encode())
        with pytest.raises(CodecError, match="the receipt"):
            _ = result.stages


@pytest.mark.parametrize("batch", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_a_part_that_is_damaged(batch: bytes) -> None:
    with pytest.raises(CodecError, match="receipt"):
        SplitReceipt(b"1-0", 1.0, 1, batch).joined()
    with pytest.raises(CodecError, match="receipt"):
        decode_receipt(batch)


def test_an_entry_that_is_no_id() -> None:
    receipt = SplitReceipt(b"\xff", 1.0, 1, BATCH.encode()).joined()

    with pytest.raises(CodecError, match="does not say when its record was enqueued"):
        _ = receipt.stages


def test_a_member_of_a_later_version_is_ignored() -> None:
    assert decode_receipt(RECEIPT.encode()[:-1] + b',"later":1}') == RECEIPT


def test_bars_stand_behind_one_another() -> None:
    lines = list(page(FOUND, 80))

    bars = {line[2:24].strip(): line[38:] for line in lines[-6:-1]}
    assert bars == {
        "waited in the stream": "████████▌",
        "read, batch filling": "",
        "waited for a worker": "        ▌",
        "ran in the worker": "        █████████████████▌",
        "waited for the writer": " " * 25 + "█" * 9,
    }
    assert lines[-7] == "  stage                       ms   %"
    assert lines[-2:] == [
        f"  waited for the writer   24.999  25  {bars['waited for the writer']}",
        "  total                  100.000",
    ]


def test_a_page_tells_what_a_record_met() -> None:
    text = "\n".join(page(FOUND | {"error": {"code": "InvalidInput", "message": "no\nimage"}}, 80))

    assert text.startswith("Record a\\x1b[31m\n")
    assert "  enqueued  2025-11-20 16:43:20.123 UTC, entry 1763657000123-7\n" in text
    assert "  ran on    web-1, worker 2, in a batch of 8, delivery 2\n" in text
    assert "  failed    InvalidInput: no\\nimage\n" in text


def test_a_page_of_nothing() -> None:
    """An id that somebody chose, and no time at all."""
    found = FOUND | {"stages_ms": {"run": 0.0}, "total_ms": 0.0, "enqueued_ms": 10**17}

    assert "  enqueued  100000000000000000 ms, entry" in "\n".join(page(found, 80))
