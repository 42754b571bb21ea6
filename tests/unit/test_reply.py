"""Results in the entries of a reply stream."""

from typing import Any

import numpy as np
import pytest

from cluster_serving.client.errors import CodecError
from cluster_serving.client.protocol.results import result_in
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.reply import Reply, pack, read_replies
from cluster_serving.client.wire.tensors import encode_tensor

BATCH = BatchReceipt(node="n", model="m", ttl_ms=0, worker=0, batch=2, filled_ms=8, wait_ms=1, run_ms=2, publish_ms=3)
ENCODED = BATCH.encode()


def test_an_entry_has_the_results_of_a_batch() -> None:
    first, second = pack(b"5-0", 7.25, 1, [b"value", b"5"]), pack(b"5-1", 7.5, 2, [b"value", b"6"])

    ((entry_id, replies),) = read_replies(
        [[b"stream", [[b"9-0", [b"batch", ENCODED, "grün".encode(), first, b"batch", second]]]]]
    )

    assert entry_id == b"9-0"
    results = [result_in(reply) for reply in replies]
    assert [(result.uri, result.value) for result in results] == [("grün", 5), ("batch", 6)]
    assert [result.receipt for result in results] == [
        BATCH.of_record(b"5-0", 7.25, 1),
        BATCH.of_record(b"5-1", 7.5, 2),
    ]


@pytest.mark.parametrize(
    ("reply", "ids"),
    [
        (None, []),
        ([], []),
        (
            [[b"s", [[b"1-0", [b"uri", b"nobody's"]], [b"1-1", []], [b"1-2", [b"batch", ENCODED]]]]],
            [b"1-0", b"1-1", b"1-2"],
        ),
    ],
)
def test_what_has_no_results(reply: Any, ids: list[bytes]) -> None:
    assert read_replies(reply) == [(entry_id, []) for entry_id in ids]


def test_outputs_are_in_the_order_in_which_they_were_packed() -> None:
    tensor = encode_tensor(np.zeros(1))

    result = result_in(Reply(b"u", pack(b"1-0", 1, 1, [b"tensor:z", tensor, b"tensor:a", tensor]), ENCODED))

    assert list(result.outputs) == ["z", "a"]


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x90", b"\x94\x01\x01\x01\x90", pack(b"1-0", 1, 1, []) + b"x"])
def test_what_is_not_packed_is_a_failed_result(packed: bytes) -> None:
    reply = Reply(b"u", packed, ENCODED)

    with pytest.raises(CodecError, match="not a packed result"):
        reply.unpack()
    result = result_in(reply)
    assert result.error is not None
    assert (result.uri, result.error[0]) == ("u", "Unreadable")
