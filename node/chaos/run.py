"""A run, from an empty directory to the verdicts.

Redis, two nodes ──► rehearsal ──► calm ──► load, callers and faults ──► settle ──► nodes told to stop
    ──► everything read once more ──► all results taken ──► verdicts
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import msgspec

from cluster_serving.client.protocol.admission import Records
from cluster_serving.client.threads.admission import enqueue
from cluster_serving.client.threads.link import Link
from cluster_serving.node.chaos import pace, processes
from cluster_serving.node.chaos.callers.calls import sample_of
from cluster_serving.node.chaos.callers.crew import CALLERS, HARVEST, Crew
from cluster_serving.node.chaos.callers.kit import Kit
from cluster_serving.node.chaos.callers.tally import Tally
from cluster_serving.node.chaos.faults import Faults
from cluster_serving.node.chaos.history import Acceptance, History, Remains, Verdict, check
from cluster_serving.node.chaos.nodes import NodeEnded, node_environment, wait_for
from cluster_serving.node.chaos.observer import Observer
from cluster_serving.node.chaos.records import Mix, RecordKind, SentRecord
from cluster_serving.node.chaos.rehearsal import Rehearsal, rehearse
from cluster_serving.node.chaos.sandbox import Sandbox, sandbox
from cluster_serving.node.chaos.schedule import Target, plan
from cluster_serving.node.chaos.traffic import Load
from cluster_serving.node.config.loading import Config
from cluster_serving.node.worker.poison import runs_of

_BYTES_A_SECOND = 16 << 20  # more would measure the disk of the append-only file
_TURN_S = 0.2
_PATIENCE_S = 20.0  # of the observer, which reads megabytes at once
_AT_ONCE = 4 * pace.BATCH
_RESULT_S = 0.03  # longest time to take a result, on a busy machine

Say = Callable[[str], None]


class Options(msgspec.Struct, frozen=True):
    """Options of a run.

    Attributes:
        rate: records per second.
        samples: .npz file with inputs. None: inputs are made up.
    """

    seed: int
    seconds: float
    rate: float
    samples: Path | None = None
    keep: bool = False


class ChaosReport(msgspec.Struct):
    """Findings of a run.

    Attributes:
        callers: report of each caller.
        notes: omitted parts of the run, each with the reason.
        directory: directory of the logs, if kept.
    """

    seed: int
    verdicts: list[Verdict]
    callers: dict[str, Tally]
    figures: dict[str, float]
    notes: list[str]
    directory: str | None = None

    @property
    def passed(self) -> bool:
        """True if every check passed."""
        return all(verdict.passed for verdict in self.verdicts)


def run(config: Config, options: Options, say: Say) -> ChaosReport:
    """Run the model under faults, and return the findings. A run leaves nothing behind, except the logs if it failed.

    Args:
        config: configuration of the user.
        options: options of the run.
        say: receives the progress of the run as text, several times a second.

    Raises:
        Fault: the run could not begin, or a node does not serve any more.
    """
    with sandbox(config) as place:
        report = _Run(place, options, say).run()
        place.keep = options.keep or not report.passed
        report.directory = str(place.directory) if place.keep else None
        return report


class _Run:
    """Phases of a run, in order."""

    def __init__(self, place: Sandbox, options: Options, say: Say) -> None:
        self._place = place
        self._options = options
        self._say = say
        self._plan = plan(options.seed, options.seconds)
        self._now = "none"
        self._stuck: list[str] = []

    def run(self) -> ChaosReport:
        """Run all phases, and return the findings."""
        place, options = self._place, self._options
        self._say("starting two nodes")
        begun_s = time.monotonic()
        for node in place.nodes:
            node.start()
        beats = [node.await_ready() for node in place.nodes]
        self._patience_s = pace.SETTLE_S + pace.STARTS * (time.monotonic() - begun_s)
        self._say("learning what the model answers")
        rehearsal = rehearse(place, beats[0], options.seed, options.samples)
        self._faults = Faults(place.nodes, place.redis, place.job, rehearsal.reply, self._patience_s)
        self._kit = rehearsal.kit(options.seed, self._patience_s)
        self._history = History(beats[0].batch_size)
        self._history.redelivered = rehearsal.redelivered
        self._watch = Observer(
            place.redis.settings(_PATIENCE_S), place.job, rehearsal.reply, rehearsal.answers, self._history
        )
        with ExitStack() as stack:
            stack.callback(self._watch.cease)
            self._watch.open()
            self._watch.start()
            self._calm(rehearsal)
            begun_s = time.monotonic()
            self._storm(rehearsal)
            storm_s = time.monotonic() - begun_s
            self._say("settling: every node whole, every record answered")
            # A node that has ended never becomes whole, so the wait is over.
            wait_for(lambda: self._settled() or not all(node.runs for node in place.nodes), self._patience_s)
            settled_s = time.monotonic() - begun_s - storm_s
            self._say("stopping the nodes, reading everything once more")
            for node in place.nodes:
                node.end(signal.SIGTERM)
            self._watch.finish()
        self._say("taking all results")
        self._harvest()
        self._history.runs = runs_of(place.poison)
        self._history.remains = self._remains()
        figures = self._figures(storm_s, settled_s)
        return ChaosReport(options.seed, check(self._history), self._history.callers, figures, rehearsal.notes)

    def _figures(self, storm_s: float, settled_s: float) -> dict[str, float]:
        history, total = self._history, self._watch.total
        return {
            "seconds": round(storm_s, 1),
            "settled after s": round(settled_s, 1),
            "records sent": len(history.records),
            "accepted": history.accepted,
            "answered": len(history.outcomes),
            "records/s": round(len(history.outcomes) / storm_s, 1),
            "faults": self._faults.done,
            "restarts": total("restarts"),
            "redelivered": total("redelivered"),
            "reconnects": total("reconnects"),
            "dead letters": len(history.dead_letters),
        }

    def _calm(self, rehearsal: Rehearsal) -> None:
        """Send records at once, and records that are slower than the lease, before any fault."""
        history = self._history
        if rehearsal.probe is not None:
            history.sending(rehearsal.probe)
            history.sent(rehearsal.probe.uri, Acceptance.ACCEPTED)
        self._say("calm: records that come at once, and that take longer than the lease")
        samples = islice(cycle(rehearsal.pools.good), _AT_ONCE)
        burst = [SentRecord(f"burst-{at}", RecordKind.GOOD, sample) for at, sample in enumerate(samples)]
        link = Link(self._place.redis.settings())
        for records in (burst, *([record] for record in rehearsal.calm)):
            for record in records:
                history.sending(record)
            fields = [rehearsal.encoder.fields(record) for record in records]
            for record, entry in zip(records, enqueue(link, self._place.job, Records(fields, [])), strict=True):
                history.sent(record.uri, Acceptance.ACCEPTED, entry.decode())
        link.close()
        history.calm = set(history.records)
        wait_for(self._answered, self._patience_s)

    def _storm(self, rehearsal: Rehearsal) -> None:
        """Send the load beside the callers, and execute the faults."""
        options, history = self._options, self._history
        crew = self._crew(self._kit, CALLERS)
        mix = Mix(options.seed, options.seconds, rehearsal.pools)
        rate = min(options.rate, _BYTES_A_SECOND / rehearsal.record_bytes)
        load = Load(self._place.redis.settings(), self._place.job, mix, rehearsal.encoder, history, rate)
        begun_s = time.monotonic()
        with ExitStack() as stack:
            stack.callback(load.cease)
            load.start()
            try:
                for fault in self._plan:
                    self._go_on_until(begun_s, fault.at_s)
                    self._now = fault.describe()
                    self._go_on_until(begun_s, 0)
                    again = fault.target in (Target.GROUP, Target.WORKER) or fault.meanwhile is not None
                    history.disturbances += again
                    self._faults.do(fault)
            except NodeEnded as ended:
                self._stuck.append(str(ended))  # reported together with the findings of the checks
            self._go_on_until(begun_s, options.seconds)
            crew.tell_the_end()
            load.finish()
            self._say("waiting for the last answers of the callers")
            history.callers = crew.tallies(2 * self._patience_s)

    def _harvest(self) -> None:
        """Let a caller take all results."""
        history = self._history
        sent = {name: (record.dialect, record.sample) for name, (record, _) in history.in_redis().items()}
        sent |= {uri: ("native", sample_of(uri)) for tally in history.callers.values() for uri in tally.left}
        crew = self._crew(self._kit._replace(sent=sent), [HARVEST])
        crew.tell_the_end()
        history.harvest = crew.tallies(self._patience_s + _RESULT_S * len(sent))[HARVEST]

    def _crew(self, kit: Kit, names: Sequence[str]) -> Crew:
        place = self._place
        return Crew(place.directory, node_environment(os.environ, place.directory, place.poison), kit, names)

    def _go_on_until(self, begun_s: float, until_s: float) -> None:
        """Wait, and report the progress."""
        history, planned = self._history, len(self._plan)
        while True:
            self._watch.check()
            at_s = time.monotonic() - begun_s
            self._say(
                f"{at_s:.0f} of {self._options.seconds:.0f} s: {history.accepted} records accepted, "
                f"{len(history.outcomes)} answered; {self._faults.done} of {planned} faults, last: {self._now}"
            )
            if at_s >= until_s:
                return
            time.sleep(min(until_s - at_s, _TURN_S))

    def _answered(self) -> bool:
        self._watch.check()
        return not self._history.unanswered

    def _settled(self) -> bool:
        if not self._answered():
            return False
        pending, entries, _ = self._watch.left_in_redis()
        return not pending and not entries and all(node.whole for node in self._place.nodes)

    def _remains(self) -> Remains:
        """End Redis, and return the remains of the nodes."""
        place = self._place
        pending, entries, consumers = self._watch.left_in_redis()
        place.redis.end()
        left = processes.of_run(place.poison)
        rings = set[int]().union(*(node.rings for node in place.nodes))
        return Remains(
            processes=[processes.describe(process) for process in left],
            segments=list(processes.holders(rings)),
            endings=[*self._stuck, *(ending for node in place.nodes for ending in node.endings)],
            consumers=[f"consumer {name} is left in the group" for name in consumers],
            pending=pending,
            entries=entries,
        )
