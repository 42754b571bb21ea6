"""Lanes of one generation: a lane for each NUMA domain where workers fit (`topology/placement.py`), otherwise one lane for all.

    workers of every lane load and warm ──► all are ready ──► writers, readers ──► serving ──► drain, each by itself ──► ended

The lanes read the same stream under consumer names of their own, and are otherwise independent. A process that dies is recovered
in its lane, while the remaining lanes go on.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain

import msgspec
import psutil

from cluster_serving.client.servers.process.child import wait
from cluster_serving.client.wire.heartbeat import Shadow
from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.config.loading import Config
from cluster_serving.node.engines.batching import Batching
from cluster_serving.node.engines.proof import Proof
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import Figures
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.inheritance import LaneName
from cluster_serving.node.supervisor.lane import Lane
from cluster_serving.node.supervisor.recent import Sample
from cluster_serving.node.supervisor.served_model import ServedModel
from cluster_serving.node.supervisor.shadow_seat import ShadowSeat
from cluster_serving.node.topology.cgroups import throttled_s
from cluster_serving.node.topology.memory import starved_s


class Generation:
    """Lanes of a generation, as the supervisor sees them.

    Args:
        config: complete configuration.
        model: model to serve.
        node: name of the node.
        number: number of earlier generations of the node.
        arrangement: number of workers, and the cores of each process.
        proof_directory: store of the workers' proofs that rows may share a batch. Empty: nothing is kept.

    Raises:
        OSError: there are no more file descriptors.
    """

    def __init__(
        self,
        config: Config,
        model: Detected,
        node: str,
        number: int,
        arrangement: Arrangement,
        proof_directory: str = "",
    ) -> None:
        self.served_model = ServedModel(config, model, arrangement.choice.runtime, proof_directory)
        self.number = number
        self.arrangement = arrangement
        self._node = node
        self._begun = False  # writers and readers have been started
        self._leaving = False
        self._lanes: list[Lane] = []
        try:
            for lane_number in range(len(arrangement.lanes)):
                first_worker = sum(lane.room for lane in self._lanes)
                name = LaneName(node, number, lane_number)
                self._lanes.append(Lane(self.served_model, arrangement, name, first_worker))
        except OSError:
            self.close()
            raise
        rings = [lane.ring for lane in self._lanes]
        self._shadow = ShadowSeat(self.served_model, arrangement, rings)
        self.served_model.start_hashing(rings)

    def consumers(self, generation: int) -> list[str]:
        """Return the consumer names of the same number of lanes in generation number `generation`."""
        return [LaneName(self._node, generation, lane).consumer for lane in range(len(self._lanes))]

    @property
    def workers(self) -> int:
        """Number of workers when no worker is missing."""
        return sum(lane.workers for lane in self._lanes)

    @property
    def workers_ready(self) -> int:
        """Number of workers that have loaded the model and run."""
        return sum(lane.workers_ready for lane in self._lanes)

    @property
    def shadow(self) -> Shadow | None:
        """Comparison of live records with float32. None: none is configured."""
        return self._shadow.told

    @property
    def batching(self) -> Batching:
        """Batching of the model, as the first records have shown, or else as a worker has found at the start."""
        batching = self.served_model.batching
        proofs: list[Proof] = []
        for lane in self._lanes:
            with suppress(msgspec.DecodeError):  # there is none, or a worker is writing it
                proofs.append(msgspec.json.decode(lane.ring.proof, type=Proof))
        if not proofs:
            return batching
        return batching.proven(max(proofs, key=lambda proof: bool(proof.fault)), self.served_model.config.batching)

    @property
    def serving(self) -> bool:
        """True while every lane can answer without starting a child first."""
        return all(lane.serving for lane in self._lanes)

    @property
    def answering(self) -> bool:
        """True while at least one lane can answer without starting a child first."""
        return any(lane.serving for lane in self._lanes)

    @property
    def consuming(self) -> bool:
        """True while at least one lane serves and takes entries from Redis."""
        return any(lane.consuming for lane in self._lanes)

    @property
    def reading(self) -> bool:
        """True while a reader runs, which may take records."""
        return any(lane.reading for lane in self._lanes)

    @property
    def ended(self) -> bool:
        """True when no child is left, and no child will be started."""
        return all(lane.ended for lane in self._lanes) and self._shadow.vacant

    @property
    def failure(self) -> tuple[str, int] | None:
        """Reason and exit code for a child that ended before its lane had ever served, or None."""
        return next((lane.failure for lane in self._lanes if lane.failure), None)

    @property
    def figures(self) -> Figures:
        """Counts and measurements of all processes."""
        return sum((lane.figures for lane in self._lanes), Figures())

    def sample(self, figures: Figures, redis_s: float) -> Sample:
        """Return the sample of this moment.

        Args:
            figures: counts and measurements of the node.
            redis_s: seconds of processor time of Redis.
        """
        times = psutil.cpu_times()
        used_s = sum(times) - times.idle - times.iowait - times.guest - times.guest_nice
        return Sample(
            time.monotonic(),
            figures,
            processes=tuple(process for lane in self._lanes for process in lane.processes()),
            redis_s=redis_s,
            machine_s=used_s / (psutil.cpu_count() or 1),
            throttled_s=throttled_s(),
            starved_s=starved_s(),
        )

    @property
    def row_output_bytes(self) -> int:
        """Bytes that the outputs of one row take, as seen lately. 0: not known."""
        return max(lane.ring.row_output_bytes for lane in self._lanes)

    def expect_outputs(self, row_bytes: int) -> None:
        """Expect outputs of `row_bytes` for each row, as an earlier generation has seen from the same model."""
        for lane in self._lanes:
            lane.ring.row_output_bytes = row_bytes

    def children(self) -> Iterator[Child]:
        """Return the running children."""
        shadow = () if self._shadow.child is None else (self._shadow.child,)
        return chain(shadow, *(lane.children() for lane in self._lanes))

    def start(self) -> None:
        """Start the missing workers. Writers and readers follow when the model is known.

        Where the runtime is still to be chosen, the first worker chooses alone, and the remaining workers take the same runtime.
        Beside serving workers, workers load one at a time.
        """
        lacking = [lane for lane in self._lanes if lane.lacks_workers]
        if self.number or self._begun or self.served_model.runtime.is_open:
            if lacking and not any(lane.loads for lane in self._lanes):
                lacking[0].start_worker()
            return
        for lane in lacking:
            while lane.lacks_workers:
                lane.start_worker()

    def hear(self, child: Child) -> None:
        """Read the message of a child on its ready pipe."""
        if child is self._shadow.child:
            self._shadow.hear()
        else:
            self._lane_of(child).hear(child)

    def bury(self, child: Child, reason: str) -> None:
        """Clean up after a dead child, and schedule a successor."""
        if child is self._shadow.child:
            self._shadow.bury(reason)
        else:
            self._lane_of(child).bury(child, reason)

    def look_after(self) -> None:
        """Look after all lanes, once in each turn of the supervisor, and start processes that are due."""
        for lane in self._lanes:
            lane.look_after()
        if not self._leaving:
            self.start()
            # Writers and readers start once every worker is ready and the model's fingerprint is known.
            if not self._begun and self.workers_ready == self.workers and not self.served_model.hashing:
                self._begun = True
                for lane in self._lanes:
                    lane.begin()
                self._shadow.begin()
        self._shadow.look_after()

    def limit_rows(self, rows: int) -> None:
        """Limit batches to `rows` rows from now on, at most the batch size of the arrangement."""
        for lane in self._lanes:
            lane.ring.most_rows = rows

    def can_become(self, arrangement: Arrangement) -> bool:
        """Return whether `rearrange` is enough: only the number of workers or the places differ, in the same lanes."""
        choice = arrangement.choice
        return (
            choice == msgspec.structs.replace(self.arrangement.choice, workers=choice.workers)
            and [places.domain for places in arrangement.lanes] == [places.domain for places in self.arrangement.lanes]
            and all(
                len(places.workers) <= lane.room for lane, places in zip(self._lanes, arrangement.lanes, strict=True)
            )
        )

    def rearrange(self, arrangement: Arrangement) -> None:
        """Move the processes to new places.

        Workers without a place finish their batches and end. Missing workers start in turn.
        """
        self.arrangement = arrangement
        for lane in self._lanes:
            lane.rearrange(arrangement)

    def limit_memory(self) -> None:
        """Replace workers that use too much memory. Called now and then."""
        for lane in self._lanes:
            lane.limit_memory()

    def drain(self) -> None:
        """Let the readers hand over the records that were read, and end. Workers and writers end after the last result."""
        self._leaving = True
        self._shadow.dismiss(signal.SIGKILL)  # it holds nothing, and may have to wait for the processor
        for lane in self._lanes:
            lane.drain()

    def give_up(self) -> None:
        """End lanes before all of them serve. Lanes that have served are drained, and the rest is ended at once."""
        self._leaving = True
        self._shadow.dismiss(signal.SIGKILL)
        for lane in self._lanes:
            lane.give_up()

    def kill(self) -> None:
        """Kill all processes now."""
        self._leaving = True
        self._shadow.dismiss(signal.SIGKILL)
        for lane in self._lanes:
            lane.kill()

    def close(self) -> None:
        """Close bells and rings."""
        for lane in self._lanes:
            lane.close()

    def _lane_of(self, child: Child) -> Lane:
        return next(lane for lane in self._lanes if any(other is child for other in lane.children()))


def take_turn(generations: Sequence[Generation], bell: Bell, longest_s: float) -> None:
    """Read messages of children until the bell rings or `longest_s` is over, then schedule successors of dead children."""
    owners = {child: lanes for lanes in generations for child in lanes.children()}
    rung, speaking = wait(owners, bell.fileno(), longest_s)
    if rung:
        bell.hear()
    for child in speaking:
        owners[child].hear(child)
    for lanes in generations:
        for child in list(lanes.children()):
            reason = child.reap()
            if reason is not None:
                lanes.bury(child, reason)
        lanes.look_after()
