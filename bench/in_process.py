"""A model served by the code of reader, worker and writer, in this process and without Redis."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.result import Result, decode_result
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.engines.engine import load
from cluster_serving.node.engines.kept_proofs import NOTHING_KEPT, KeptProofs
from cluster_serving.node.engines.padding import Padding
from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.engines.trials import Trials
from cluster_serving.node.engines.warm_up import warm_up
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.batcher import Batcher
from cluster_serving.node.reader.decoding import RecordDecoder
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.worker.spec import WorkerSpec
from cluster_serving.node.worker.worker import Worker
from cluster_serving.node.writer.fields import ResultFields, batch_receipt
from cluster_serving.node.writer.outcome import row_outcomes

_BATCH = 32


class Serving:
    """A served model. Records that are given together ride together as far as a node would let them.

    Attributes:
        batching: whether records are rows.
        batches: number of records in each batch that went to the worker.
    """

    def __init__(
        self,
        path: Path,
        options: LoadOptions | None = None,
        slot_bytes: int = 16 << 20,
        *,
        deterministic: bool = False,
        padding: Mapping[str, float] | None = None,
        kept: KeptProofs = NOTHING_KEPT,
    ) -> None:
        options = options or LoadOptions()
        model, runtime = detect(str(path)), Runtime("native", "f32")
        backend, _, self.batching, _ = load(model, options, runtime, _BATCH, kept=kept)
        self.inputs, self.outputs = backend.inputs, backend.outputs
        geometry = Geometry(slots=8, batch=_BATCH, slot_bytes=slot_bytes, workers=1)
        self._ring = Ring(geometry)
        self._bells = [Bell() for _ in range(3)]
        reader, writer, worker = (bell.fileno() for bell in self._bells)
        lane = LaneSpec("job", "node", RedisSettings(), geometry, self._ring.fd, reader, writer, (worker,))
        spec = WorkerSpec(lane, 0, model, options, runtime, Trials(), "", "", "", None, None, deterministic)
        padded = Padding(backend, padding) if padding else None
        row_bytes = warm_up(backend, 1 if self.batching.one_by_one else _BATCH)
        self._worker = Worker(spec, backend, self.batching, padded, row_bytes, partial(kept.keep, runtime))
        self._worker.stop()  # each run ends when no slot waits
        self._ring.set_serving(0, True)
        decoding = DecodeOptions(calls=self.batching.mode == "none", padded=tuple(padding or ()))
        self._decoder = RecordDecoder(backend.inputs, b"reply", decoding)
        self.batches: list[int] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._ring.fd)
        for bell in self._bells:
            bell.close()

    @property
    def proof(self) -> Proof | None:
        """Proof by the first records, or else by made-up rows, that rows may share a batch."""
        return msgspec.json.decode(self._ring.proof, type=Proof) if self._ring.proof else self.batching.proof

    def predict(self, record: Mapping[str, Any]) -> list[Any]:
        """Return the outputs of a record in the model's order.

        Raises:
            ValueError: the record failed.
        """
        [result] = self.results([record])
        if result.error is not None:
            raise ValueError(f"{result.error[0]}: {result.error[1]}")
        return list(result.outputs.values())

    def results(self, records: Sequence[Mapping[str, Any]]) -> list[Result]:
        """Return the result of each record."""
        batcher = Batcher(self._ring)
        for at, record in enumerate(records):
            entry_id = b"1-%d" % (at + 1)
            decoded = self._decoder.decode(entry_id, encode_record(str(at), record), 0)
            assert batcher.place(entry_id, decoded, 0)
        found: dict[str, Result] = {}
        while batcher:
            refused = batcher.pop_refused()
            batch = refused or batcher.pop_due(0, 0, 0)
            assert batch is not None
            if refused is not None:
                self._ring.answer(batch.index, 1)
            else:
                self.batches.append(len(batch.ids))
                self._run("reader", batch.index)
            found |= self._published(batch.index)
        return [found[str(at)] for at in range(len(records))]

    def _run(self, by: str, index: int) -> None:
        self._ring.hand_over(by, index, 0, 1)
        self._worker.run()

    def _published(self, index: int) -> dict[str, Result]:
        """Return the results of a slot, and free the slot."""
        slot = self._ring.slots[index]
        found: dict[str, Result] = {}
        while True:
            self._ring.move("writer", index, State.PUBLISHING)
            fields = ResultFields(
                slot, batch_receipt(slot, 0, node="", model="", ttl_ms=0, worker=0, clock_offset_ms=0)
            )
            for ended in row_outcomes(slot, 0):
                uri = ended.row.uri.decode()
                found[uri] = decode_result(uri, [bytes(each) for each in fields.answer(ended).fields])
            if not slot.unfinished:
                self._ring.move("writer", index, State.FREE)
                return found
            slot.make_room()
            self._run("writer", index)
