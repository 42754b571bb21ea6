"""Results of a slot as a writer makes them, without Redis."""

from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.result import Result, decode_result
from cluster_serving.node.processing.options import LegacyClients
from cluster_serving.node.ring.slot import Slot
from cluster_serving.node.writer.fields import Answer, ResultFields, batch_receipt
from cluster_serving.node.writer.outcome import row_outcomes


def receipt_of(slot: Slot, now_ms: float = 0, *, node: str = "node-1", clock_offset_ms: float = 0) -> BatchReceipt:
    """The part of the receipt that is equal for all records."""
    return batch_receipt(
        slot, now_ms, node=node, model="sha256:12", ttl_ms=60_000, worker=3, clock_offset_ms=clock_offset_ms
    )


def answers_of(
    slot: Slot,
    now_ms: float = 0,
    *,
    node: str = "node-1",
    clock_offset_ms: float = 0,
    legacy_filter_text: bool = False,
    legacy: LegacyClients = "off",
) -> list[Answer]:
    """The answer of each record."""
    receipt = receipt_of(slot, now_ms, node=node, clock_offset_ms=clock_offset_ms)
    fields = ResultFields(
        slot, receipt, clock_offset_ms=clock_offset_ms, legacy_filter_text=legacy_filter_text, legacy=legacy
    )
    return [fields.answer(ended) for ended in row_outcomes(slot, now_ms)]


def results_of(slot: Slot) -> list[Result]:
    """The result of each native record, as a client decodes it."""
    return [decode_result("u", answer.fields) for answer in answers_of(slot)]
