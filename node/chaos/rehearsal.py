"""Rehearsal before any fault: learns the inputs and the answers of the model, and chooses the poison rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import InvalidValue
from cluster_serving.client.protocol.requests import Dialect
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.client.wire.result import Result
from cluster_serving.node.chaos import pace
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.learn import Answers, ask
from cluster_serving.node.chaos.records import Encoder, Pools, RecordKind, SentRecord, flaws_for
from cluster_serving.node.chaos.samples import Sample, made_up, read
from cluster_serving.node.chaos.sandbox import Sandbox
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.worker.poison import Effect, MagicRow, Poison, as_batch, row_keys

_SAMPLES = 48
_TIMES = 3
_PATIENCE_S = 60.0
_EFFECTS: Final = {
    RecordKind.SLOW: Effect.SLEEP,
    RecordKind.RAISING: Effect.RAISE,
    RecordKind.CRASHING: Effect.CRASH,
    RecordKind.HANGING: Effect.HANG,
}
# Number of poison samples of each kind. The calm has its own samples, so that their runs are counted separately.
_CALM: Final = (RecordKind.RAISING, RecordKind.SLOW, RecordKind.SLOW)
_LOAD: Final = {RecordKind.SLOW: 3, RecordKind.RAISING: 8, RecordKind.CRASHING: 5, RecordKind.HANGING: 3}
_LEAST_GOOD = 6


class Rehearsal:
    """Results of the rehearsal, from which a run is made.

    Attributes:
        encoder: encoder of records.
        answers: the right answers.
        reply: key of the reply stream.
        pools: samples of each kind of record.
        probe: record that showed that poison works. None: poison does not work.
        calm: records with an effect to send before the faults.
        record_bytes: largest size of a record.
        notes: omitted parts of the run, each with the reason.
        redelivered: descriptions of records that were delivered more than once.
    """

    def __init__(self, place: Sandbox, samples: Sequence[Sample], inputs: Sequence[TensorSpec]) -> None:
        self.reply = keys.reply_key(place.job, "chaos")
        self.encoder = Encoder(samples, self.reply)
        self.answers = Answers()
        self.pools = Pools([], {}, [], [])
        self.probe: SentRecord | None = None
        self.calm: list[SentRecord] = []
        self.notes: list[str] = []
        self.redelivered: list[str] = []
        self._place = place
        self._samples = samples
        self._inputs = inputs

    @property
    def record_bytes(self) -> int:
        """Largest size of a record's fields, in bytes."""
        records = (SentRecord("0", RecordKind.GOOD, sample) for sample in self.pools.good)
        return max(sum(map(len, self.encoder.fields(record))) for record in records)

    def learn(self, dialect: Dialect, samples: Sequence[int], times: int) -> list[int]:
        """Send each sample `times` times, and return the samples that always got the same answer.

        Raises:
            Fault: no sample always got the same answer.
        """
        results: list[tuple[int, Result | None]] = []
        for turn in range(times):
            records = [SentRecord(f"{dialect}-{times}-{turn}-{at}", RecordKind.GOOD, at, dialect) for at in samples]
            found = self._ask(records)
            results += [(record.sample, found.get(record.uri)) for record in records]
            receipts = [(uri, result.receipt) for uri, result in found.items()]
            self.redelivered += [
                f"record {uri}: {each.deliveries} deliveries" for uri, each in receipts if each and each.deliveries > 1
            ]
        bad = {at for at, result in results if result is None or not self.answers.learn(dialect, at, result)}
        good = [at for at in samples if at not in bad]
        if not good:
            for _sample, result in results:
                if result is None:
                    raise Fault(f"a record is not answered within {_PATIENCE_S:.0f} s while nothing is wrong")
                if result.error is not None:
                    raise Fault(
                        f"the model refuses the inputs that were made up for it ({result.error[1]}): "
                        "name an .npz file with inputs for it with --samples"
                    )
            raise Fault(
                "the model answers the same inputs differently each time: there is no right answer to compare with"
            )
        return good

    def allot(self, good: Sequence[int], dialects: Sequence[Dialect], flaws: Sequence[str]) -> None:
        """Choose the poison samples, and tell the workers."""
        left = list(good)
        self.pools = Pools(left, {}, dialects, flaws)
        if len(left) < sum((len(_CALM), *_LOAD.values(), _LEAST_GOOD)):
            self.notes.append("no poison is tried: the model's inputs allow too few different rows")
            return
        probe, *calm = [SentRecord(f"calm-{at}", kind, left.pop()) for at, kind in enumerate(_CALM)]
        magic = {kind: [left.pop() for _ in range(count)] for kind, count in _LOAD.items()}
        rows = [(record.sample, record.kind) for record in (probe, *calm)]
        rows += [(sample, kind) for kind, found in magic.items() for sample in found]
        magic_rows = [
            MagicRow(sample, row_keys(as_batch(self._samples[sample], self._inputs), self._inputs)[0], _EFFECTS[kind])
            for sample, kind in rows
        ]
        Poison(pace.SLOW_S, magic_rows).write(self._place.poison)
        result = self._ask([probe]).get(probe.uri)
        if result is not None and self.answers.right(probe.dialect, probe.sample, result):
            self.notes.append("no poison is tried: rows do not reach the model as they were sent (preprocess)")
            return
        self.probe, self.calm = probe, calm
        self.pools = Pools(left, magic, dialects, flaws)

    def kit(self, seed: int, timeout_s: float) -> Kit:
        """Return the kit of the callers. No record takes longer than `timeout_s`."""
        place = self._place
        inputs, good = self.encoder.inputs, self.pools.good
        return Kit(place.redis.url, place.job, seed, timeout_s, inputs, good, self.answers)

    def _ask(self, records: Sequence[SentRecord]) -> Mapping[str, Result]:
        fields = [(record.uri, self.encoder.fields(record)) for record in records]
        return ask(self._place.redis.settings(), self._place.job, fields, _PATIENCE_S)


def rehearse(place: Sandbox, beat: Heartbeat, seed: int, file: Path | None) -> Rehearsal:
    """Learn the facts about the model that a run needs.

    Args:
        place: sandbox with ready nodes.
        beat: heartbeat of a node.
        seed: seed of the run.
        file: .npz file with samples. None: samples are made up.

    Raises:
        Fault: the model answers none of the samples, or never gives the same answer twice.
    """
    inputs = beat.inputs
    samples = read(file, inputs, _SAMPLES) if file else made_up(inputs, np.random.default_rng(seed), _SAMPLES)
    rehearsal = Rehearsal(place, samples, inputs)
    good = rehearsal.learn("native", range(len(samples)), 1)[:_SAMPLES]
    good = rehearsal.learn("native", good, _TIMES - 1)
    dialects: list[Dialect] = ["native"]
    try:
        good = rehearsal.learn("original", good, _TIMES - 1)
        dialects.append("original")
    except (Fault, InvalidValue) as fault:
        rehearsal.notes.append(f"the original dialect is not tried: {fault}")
    rehearsal.allot(good, dialects, flaws_for(inputs, own_processing=bool(place.config.processing)))
    return rehearsal
