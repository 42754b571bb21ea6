"""All lanes of one generation: a lane a NUMA domain where that fits (`topology/placement.py`), and one for all otherwise.

    workers of every lane load and warm ──► all are ready ──► writers, readers ──► serving ──► drain, each by itself ──► ended

The lanes read the same stream under names of their own, and have nothing else to do with each other: what dies in one of them
is recovered there, while the others go on.
"""

import select
from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.config.loading import Config
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import Figures
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.lane import Lane
from cluster_serving.node.supervisor.launcher import consumer_of
from cluster_serving.node.supervisor.served_model import ServedModel


class Generation(ServedModel):
    """The lanes of a generation, as the supervisor sees them; its arguments are those of `ServedModel`.

    Raises:
        OSError: there are no more descriptors.
    """

    def __init__(self, config: Config, model: Detected, node: str, number: int, arrangement: Arrangement) -> None:
        super().__init__(config, model, node, number, arrangement)
        self._begun = False  # writers and readers have been started
        self._leaving = False
        self._lanes: list[Lane] = []
        try:
            for places in arrangement.lanes:
                first_worker = sum(lane.room for lane in self._lanes)
                lane = Lane(self, len(self._lanes), first_worker, places, arrangement.room(places))
                self._lanes.append(lane)
        except OSError:
            self.close()
            raise

    def consumers(self, generation: int) -> list[str]:
        """The names under which as many lanes of this generation read."""
        return [consumer_of(self.node, generation, lane) for lane in range(len(self._lanes))]

    @property
    def workers(self) -> int:
        """How many workers they have when nobody lacks."""
        return sum(lane.workers for lane in self._lanes)

    @property
    def workers_ready(self) -> int:
        """How many workers have loaded the model and run."""
        return sum(lane.workers_ready for lane in self._lanes)

    @property
    def serving(self) -> bool:
        """Whether every lane can answer without any child being started first."""
        return all(lane.serving for lane in self._lanes)

    @property
    def answering(self) -> bool:
        """Whether some lane can."""
        return any(lane.serving for lane in self._lanes)

    @property
    def consuming(self) -> bool:
        """Whether some lane can, and takes entries from Redis."""
        return any(lane.consuming for lane in self._lanes)

    @property
    def ended(self) -> bool:
        """Whether no child is left, and none will be started."""
        return all(lane.ended for lane in self._lanes)

    @property
    def failure(self) -> tuple[str, int] | None:
        """Why a child ended before its lane has ever served, and the exit code for it."""
        return next((lane.failure for lane in self._lanes if lane.failure), None)

    @property
    def figures(self) -> Figures:
        """What all processes have counted and measured."""
        return sum((lane.figures for lane in self._lanes), Figures())

    def children(self) -> Iterator[Child]:
        """Those that run."""
        return chain.from_iterable(lane.children() for lane in self._lanes)

    def start(self) -> None:
        """Start the workers; the others follow when the model is known."""
        self._start_workers()

    def hear(self, child: Child) -> None:
        """A child has spoken on its ready pipe."""
        self._lane_of(child).hear(child)

    def bury(self, child: Child, reason: str) -> None:
        """A child has died: another one follows."""
        self._lane_of(child).bury(child, reason)

    def look_after(self) -> None:
        """Once in each turn of the supervisor: start who is due."""
        for lane in self._lanes:
            lane.look_after()
        if not self._leaving:
            self._start_workers()
            self._begin()

    def limit_rows(self, rows: int) -> None:
        """Let batches have so many rows at most from now on; not more than the arrangement says."""
        for lane in self._lanes:
            lane.ring.most_rows = rows

    def can_become(self, arrangement: Arrangement) -> bool:
        """Whether `rearrange` is enough: there are other workers or places, in the same lanes."""
        choice = arrangement.choice
        return (
            choice == msgspec.structs.replace(self.arrangement.choice, workers=choice.workers)
            and [places.domain for places in arrangement.lanes] == [places.domain for places in self.arrangement.lanes]
            and all(
                len(places.workers) <= lane.room for lane, places in zip(self._lanes, arrangement.lanes, strict=True)
            )
        )

    def rearrange(self, arrangement: Arrangement) -> None:
        """Move the processes to other places; workers that have none finish what they have, those that lack follow one by one."""
        self.arrangement = arrangement
        for lane, places in zip(self._lanes, arrangement.lanes, strict=True):
            lane.rearrange(places)

    def limit_memory(self) -> None:
        """Replace workers that take too much; now and then."""
        for lane in self._lanes:
            lane.limit_memory()

    def drain(self) -> None:
        """Let the readers hand over what they have read and end; the others follow when all of it is published."""
        self._leaving = True
        for lane in self._lanes:
            lane.drain()

    def give_up(self) -> None:
        """End lanes that do not all serve: those that have begun are drained, and nobody waits for what the others have."""
        self._leaving = True
        for lane in self._lanes:
            lane.give_up()

    def kill(self) -> None:
        """End everybody now."""
        self._leaving = True
        for lane in self._lanes:
            lane.kill()

    def close(self) -> None:
        """Give back bells and rings."""
        for lane in self._lanes:
            lane.close()

    def _lane_of(self, child: Child) -> Lane:
        return next(lane for lane in self._lanes if any(other is child for other in lane.children()))

    def _start_workers(self) -> None:
        """Start the workers that lack.

        Where the runtime is to be chosen, the first worker does so alone, and the rest take what it chose. Beside workers that
        serve, only one loads at a time.
        """
        lacking = [lane for lane in self._lanes if lane.lacks_workers]
        if self.number or self._begun or self.runtime.is_open:
            if lacking and not any(lane.loads for lane in self._lanes):
                lacking[0].start_worker()
            return
        for lane in lacking:
            while lane.lacks_workers:
                lane.start_worker()

    def _begin(self) -> None:
        """Start writers and readers, once every worker is ready and the model's fingerprint known."""
        if not self._begun and self.workers_ready == self.workers and not self.hashing:
            self._begun = True
            for lane in self._lanes:
                lane.begin()


def take_turn(generations: Sequence[Generation], bell: Bell, longest_s: float) -> None:
    """Hear what children say, until the bell is rung or so many seconds are over; the dead are followed by others."""
    _wait(generations, bell, longest_s)
    for lanes in generations:
        for child in list(lanes.children()):
            reason = child.reap()
            if reason is not None:
                lanes.bury(child, reason)
        lanes.look_after()


def _wait(generations: Sequence[Generation], bell: Bell, longest_s: float) -> None:
    children = [(child, lanes) for lanes in generations for child in lanes.children()]
    speaking = {child.fileno(): (child, lanes) for child, lanes in children if child.booting}
    poll = select.poll()
    for descriptor in (bell.fileno(), *speaking, *(child.death_fd for child, _ in children)):
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(longest_s * 1000)}
    if bell.fileno() in ready:
        bell.hear()
    for descriptor in speaking.keys() & ready:
        child, lanes = speaking[descriptor]
        lanes.hear(child)
