"""Data are copied once on their way in, from what Redis sent into the slot, and once on their way out, into the slot."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import hiredis
import numpy as np

from cluster_serving.client.protocol.resp import new_reader
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect, load
from cluster_serving.node.processing.options import ImageOptions
from cluster_serving.node.reader.batcher import Batcher
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.worker.inputs import ModelRun, SlotInputs
from cluster_serving.node.worker.outputs import OutputArea, SlotOutputs

GEOMETRY = Geometry(slots=1, batch=4, slot_bytes=1 << 24, workers=1)
FLOATS = 1 << 20
MODEL = """
class Model:
    inputs = [("x", "float32", (None, None))]
    outputs = inputs

    def predict(self, batch):
        return batch
"""


def address(content: object) -> int:
    """Return the address of the first byte of a content."""
    found: int = np.frombuffer(content, np.uint8).__array_interface__["data"][0]  # type: ignore[call-overload]
    return found


def replied(*records: list[bytes]) -> list[list[bytes]]:
    """Entries as they come out of a reply of Redis."""
    reader = new_reader()
    for fields in records:
        reader.feed(hiredis.pack_command(tuple(fields)))  # type: ignore[arg-type]
    return [reader.gets(False) for _ in records]


def allocated_bytes(step: Callable[[], object]) -> int:
    """Return the most memory that a step takes while it runs, in bytes; numpy's memory counts."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_from_the_reply_of_redis_to_the_backend(tmp_path: Path) -> None:
    """The bytes that the reply brought are copied. The backend gets the memory they were copied to."""
    (tmp_path / "model.py").write_text(MODEL)
    model = load(detect(str(tmp_path / "model.py")), LoadOptions())
    decoder, ring = RecordDecoder(model.inputs, b""), Ring(GEOMETRY)
    entries = replied(*[encode_record("u", {"x": np.full(FLOATS, number, np.float32)}) for number in range(3)])
    decoder.decode(b"0-1", entries[0], 0)
    batcher = Batcher(ring)

    alike = decoder.decode_alike([b"0-1"] * len(entries), entries, 0)
    assert alike is not None
    taken = allocated_bytes(lambda: batcher.place_alike([b"1-1", b"1-2", b"1-3"], alike, 0, 0, [1, 1, 1]))
    batch = batcher.pop_due(0, 0, 0)
    assert batch is not None
    slot = ring.slots[batch.index]
    (run,), _ = SlotInputs(model.inputs, ImageOptions()).decode(slot, range(3))

    data_bytes = 4 * FLOATS
    for content, fields in zip(alike.contents[0], entries, strict=True):
        message = fields[3]
        assert address(content) == address(message) + len(message) - data_bytes
    assert taken < data_bytes / 10
    rows = run.inputs["x"]
    assert [address(row) for row in rows] == [address(slot.inputs) + number * data_bytes for number in range(3)]
    assert rows[:, -1].tolist() == [0, 1, 2]
    ring.close()


def test_from_the_model_to_the_slot() -> None:
    ring = Ring(GEOMETRY)
    slot, outputs = ring.slots[0], {"y": np.ones((2, FLOATS), np.float32)}

    taken = allocated_bytes(lambda: SlotOutputs(None, None).store(OutputArea(slot), ModelRun([0, 1], {}), outputs))

    assert taken < outputs["y"].nbytes / 10
    assert bytes(slot.outputs[: outputs["y"].nbytes]) == outputs["y"].tobytes()
    ring.close()
