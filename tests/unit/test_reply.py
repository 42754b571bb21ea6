"""Results in the entries of a reply stream."""

import numpy as np
import pytest

from cluster_serving.client.errors import CodecError
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.reply import Reply, pack, read_replies
from cluster_serving.client.wire.tensors import encode_tensor

BATCH = BatchReceipt(node="n", model="m", ttl_ms=0, worker=0, batch=2, filled_ms=8, wait_ms=1, run_ms=2, publish_ms=3)
ENCODED = BATCH.encode()


def test_an_entry_has_the_results_of_a_batch() -> None:
    first, second = pack(b"5-0", 7.25, 1, [b"value", b"5"]), pack(b"5-1", 7.5, 2, [b"value", b"6"])

    replies = read_replies([(b"9-0", [b"batch", ENCODED, "grün".encode(), first, b"batch", second])])

    results = [reply.result() for reply in replies]
    assert [(result.uri, result.value) for result in results] == [("grün", 5), ("batch", 6)]
    assert [result.receipt for result in results] == [
        BATCH.of_record(b"5-0", 7.25, 1),
        BATCH.of_record(b"5-1", 7.5, 2),
    ]


def test_an_entry_without_results() -> None:
    assert read_replies([(b"1-0", [b"batch", ENCODED])]) == []


def test_outputs_are_in_the_order_in_which_they_were_packed() -> None:
    tensor = encode_tensor(np.zeros(1))

    result = Reply(b"u", pack(b"1-0", 1, 1, [b"tensor:z", tensor, b"tensor:a", tensor]), ENCODED).result()

    assert list(result.outputs) == ["z", "a"]


def test_a_record_that_was_bound_by_order_says_so_in_its_receipt() -> None:
    fields = [b"value", b"5", b"bound", b"order"]

    result = Reply(b"u", pack(b"5-0", 7.25, 2, fields), ENCODED).result()

    assert result.value == 5
    assert result.receipt == BATCH.of_record(b"5-0", 7.25, 2, bound="order")


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x90", b"\x94\x01\x01\x01\x90", pack(b"1-0", 1, 1, []) + b"x"])
def test_what_is_not_packed_is_a_failed_result(packed: bytes) -> None:
    reply = Reply(b"u", packed, ENCODED)

    with pytest.raises(CodecError, match="not a packed result"):
        reply.unpack()
    result = reply.result()
    assert result.error is not None
    assert (result.uri, result.error[0]) == ("u", "Unreadable")
