"""Lane of a node: its ring, its bells, and its reader, workers and writer, started in order and restarted after a death.

start ──► workers load and warm ──► writer, reader ──► serving ──► drain: reader ──► ring empty ──► workers, writer ──► ended

The number of workers may change while the lane serves. An added worker shares the ring as soon as the worker is ready. A
dismissed worker finishes its batches.
"""

import signal
import time
from collections.abc import Iterator
from functools import partial

import structlog

from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.config.arrangement import Arrangement
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import FIRST_WORKER, READER, WRITER, Count, Figures
from cluster_serving.node.ring.ring import HANDED_OVER, Ring, State
from cluster_serving.node.ring.slot import Geometry, now_us
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.hangs import HangDetector
from cluster_serving.node.supervisor.inheritance import LaneName
from cluster_serving.node.supervisor.launcher import Launcher
from cluster_serving.node.supervisor.memory_limit import MemoryLimit
from cluster_serving.node.supervisor.recent import ProcessSample
from cluster_serving.node.supervisor.recovery import recover
from cluster_serving.node.supervisor.seat import KillReason, Seat
from cluster_serving.node.supervisor.served_model import ServedModel
from cluster_serving.node.supervisor.succession import Death, Successor, decide
from cluster_serving.node.topology import memory
from cluster_serving.node.topology.pinning import pin

log = structlog.get_logger(__name__)

_SLOWEST_REPLY_S = 5.0  # of Redis, beyond redisTimeout, before a silent reader or writer counts as hung
_CONSUMES_S = 5.0  # a reader that is silent for so long does not consume, whatever its last report was


def slots_for(workers: int) -> int:
    """Return the number of slots: for each worker one running, one waiting and one published, for the reader two, and a spare."""
    return 3 * workers + 3


class Lane:
    """Processes of one lane, as the supervisor sees them.

    Args:
        served_model: model and configuration to serve.
        arrangement: number of workers, and the cores of each process.
        name: name of the lane.
        first_worker: number of workers that the preceding lanes may have.
    """

    def __init__(self, served_model: ServedModel, arrangement: Arrangement, name: LaneName, first_worker: int) -> None:
        config, batch, places = served_model.config, arrangement.choice.batch, arrangement.lanes[name.number]
        self._served_model = served_model
        self._name = name
        self.room = room = arrangement.room(places)
        """Largest number of workers that the lane may have later."""
        self.workers = len(places.workers)
        """Number of workers when no worker is missing."""
        self.ring = Ring(Geometry(slots=slots_for(room), batch=batch, slot_bytes=config.slot_bytes, workers=room))
        if places.domain is not None:
            memory.keep_segment(self.ring.fd, places.domain)
        self.ring.most_slots = slots_for(self.workers)
        self._bells: list[Bell] = []
        try:
            self._bells += (Bell() for _ in range(2 + room))
        except OSError:
            self.close()
            raise
        self._reader_bell, self._writer_bell, *self._worker_bells = self._bells
        self._launcher = launcher = Launcher(served_model, arrangement, name, first_worker, self.ring, self._bells)
        self.failure: tuple[str, int] | None = None
        """Reason and exit code for a child that ended before the lane had ever served, or None."""
        self._rearranged_s = float("-inf")
        self._restarts = self._recycled = 0
        self._served = False
        self._draining = False
        self._reader = Seat(launcher.name_of("reader"), launcher.reader)
        self._writer = Seat(launcher.name_of("writer"), launcher.writer)
        self._workers = [Seat(launcher.name_of_worker(index), partial(launcher.worker, index)) for index in range(room)]
        self._seats = (*self._workers, self._writer, self._reader)
        self._memory_limit = MemoryLimit(self.ring, self._workers, config.max_worker_memory)
        patience_s = max(config.lease_s, config.redis_timeout / 1000 + _SLOWEST_REPLY_S)
        self._hangs = HangDetector(self.ring, config.run_timeout_s, patience_s)

    @property
    def workers_ready(self) -> int:
        """Number of workers that have loaded the model and run."""
        return sum(seat.ready is not None for seat in self._wanted_workers())

    @property
    def lacks_workers(self) -> bool:
        """True while a wanted worker has never been started, or has not been started again after a dismissal."""
        return any(seat.vacant for seat in self._wanted_workers())

    @property
    def loads(self) -> bool:
        """True while a worker is booting."""
        return any(seat.booting is not None for seat in self._wanted_workers())

    @property
    def serving(self) -> bool:
        """True while a record enqueued now would be answered without starting a child first."""
        return self._reader.ready is not None and self._writer.ready is not None and self.workers_ready > 0

    @property
    def consuming(self) -> bool:
        """True while the lane serves and takes entries from Redis."""
        return self.serving and self.ring.consuming and self.ring.silent_s(READER) < _CONSUMES_S

    @property
    def reading(self) -> bool:
        """True while a reader runs, which may take records."""
        return self._reader.child is not None

    @property
    def ended(self) -> bool:
        """True when no child is left, and no child will be started."""
        return not any(seat.child or seat.wanted for seat in self._seats)

    @property
    def figures(self) -> Figures:
        """Counts and measurements of the lane's processes, the number of replacements, and the counts of the shadow."""
        own = {
            "restarts": self._restarts,
            "recycled": self._recycled,
            "shadow_agreeing": self.ring.shadow_agreeing,  # first: never more than were compared
            "shadowed": self.ring.shadowed,
        }
        return Figures(own) + Figures.of(self.ring.counters, self.ring.measures)

    def processes(self) -> Iterator[ProcessSample]:
        """Yield the use of each wanted process."""
        seats = (self._reader, self._writer, *self._wanted_workers())  # in the order of the counters
        for seat, row in zip(seats, self.ring.counters, strict=False):
            pid = seat.child.pid if seat.child is not None else 0
            # A worker counts its present batch when the batch is done.
            running = self.ring.owned(self._workers.index(seat), State.RUNNING) if seat in self._workers else []
            started_us = sum(self.ring.slots[slot].times_us[1] for slot in running)
            busy_us = row[Count.BUSY_US] + (now_us() - started_us if started_us else 0)
            yield ProcessSample.of(seat.name, pid, busy_us / 1e6, row[Count.BLOCKED_US] / 1e6)

    def children(self) -> Iterator[Child]:
        """Return the running children."""
        return (seat.child for seat in self._seats if seat.child is not None)

    def start_worker(self) -> None:
        """Start the next missing worker."""
        self._fill(next(seat for seat in self._wanted_workers() if seat.vacant))

    def begin(self) -> None:
        """Start writer and reader, once every worker of every lane is ready and the model's fingerprint is known."""
        self._fill(self._writer)
        # Beside serving lanes the reader starts after the writer, because records read earlier would wait, 0.3 s as measured.
        if not self._name.generation:
            self._fill(self._reader)

    def hear(self, child: Child) -> None:
        """Read the message of a child on its ready pipe, and let a ready child take part."""
        child.hear()
        if child.ready is None:
            return
        log.info("ready", child=child.name, pid=child.pid, seconds=round(child.ready_s - child.started_s, 2))
        self._hangs.booted(child)
        seat = self._seat_of(child)
        if seat.wanted and child.started_s < self._rearranged_s:
            self._keep_in_place(seat)  # the child was started for an earlier place, and may have moved there
        if child.kind == "worker":
            self._served_model.learn(child.ready)
            self._memory_limit.welcome(seat)
            self.ring.set_serving(self._workers.index(seat), seat.wanted)
            self._reader_bell.ring()
        elif child.kind == "writer" and self._writer.wanted and not (self._reader.wanted or self._draining):
            self._fill(self._reader)
        self._served = self._served or self.serving

    def bury(self, child: Child, reason: str) -> None:
        """Recover the slots of a dead child, and do what `succession.py` decides for its seat."""
        child.hear()
        child.close()
        seat = self._seat_of(child)
        verdict, seat.verdict = seat.verdict, None
        interrupted = child.kind == "worker" and self._recover(self._workers.index(seat), reason, verdict)
        death = Death(
            child.name,
            reason,
            wanted=seat.wanted,
            recycling=seat.recycling,
            ready=child.ready is not None,
            interrupted=interrupted,
            lane_served=self._served,
            failure=child.failure,
            verdict=verdict.reason if verdict else "",
        )
        succession = decide(death)
        if succession.died is not None:
            log.error("died", child=child.name, pid=child.pid, reason=succession.died)
            seat.wait()
        if succession.successor is Successor.AT_ONCE:
            seat.due_s = time.monotonic()
        seat.recycling = succession.recycled
        seat.child = None
        self.failure = self.failure or succession.failure

    def look_after(self) -> None:
        """Kill hung children, start due children, and end all children of a drained lane, once in each turn of the supervisor."""
        self._kill_hung()
        for seat in self._seats:
            if seat.is_due:
                if seat.recycling:
                    self._recycled += 1
                else:
                    self._restarts += 1
                log.info("starting a successor", child=seat.name)
                self._fill(seat)
        # Slots that wait for a worker without successor go to its neighbours: the reader may choose a worker at the moment of
        # the worker's dismissal.
        for worker in {self.ring.owner(slot) for slot in self.ring.every(State.READY)}:
            if self._workers[worker].vacant:
                self._recover(worker, "dismissed")
        if self._draining and self._reader.child is None and not self.ring.every(*HANDED_OVER):
            self._draining = False  # once is enough
            for seat in self._seats:
                seat.dismiss()

    def rearrange(self, arrangement: Arrangement) -> None:
        """Move the processes and their successors to new places, and dismiss the workers without a place.

        Start missing workers by `start_worker` afterwards.

        Args:
            arrangement: places of at most `room` workers for this lane.
        """
        self._launcher.arrangement, self._rearranged_s = arrangement, time.monotonic()
        self.workers = len(self._launcher.places.workers)
        self.ring.most_slots = slots_for(self.workers)
        for index, seat in enumerate(self._workers[self.workers :], self.workers):
            if seat.wanted:
                self.ring.set_serving(index, False)
                seat.dismiss()
        for seat in (*self._wanted_workers(), self._writer, self._reader):
            self._keep_in_place(seat)

    def limit_memory(self) -> None:
        """Replace a worker that uses too much memory. Called now and then."""
        if not self._draining:
            self._memory_limit.look()

    def drain(self) -> None:
        """Let the reader hand over the records that were read, and end. Workers and writer end after the last result."""
        self._draining = True
        self._reader.dismiss()

    def give_up(self) -> None:
        """End the lane: after publishing the records that were read, or at once if the lane has never served."""
        if self._served:
            self.drain()
        else:
            self.kill()

    def kill(self) -> None:
        """Kill all processes now."""
        for seat in self._seats:
            seat.dismiss(signal.SIGKILL)

    def close(self) -> None:
        """Close bells and ring. The kernel frees the segment when the last child has ended."""
        for bell in self._bells:
            bell.close()
        self.ring.close()

    def _fill(self, seat: Seat) -> None:
        try:
            seat.start()
        except OSError as error:
            log.error("cannot start a process", child=seat.name, reason=str(error))
            if not self._served:
                told = f"the {seat.name} cannot be started: {error.strerror}", int(ExitCode.FAILED)
                self.failure = self.failure or told

    def _kill_hung(self) -> None:
        hangs = self._hangs
        hangs.look()
        for index, seat in enumerate(self._workers):
            if seat.ready is not None and hangs.worker_hangs(index, seat.ready, seat.leaving_since_s):
                seat.condemn(f"no run has ended for runTimeout, {hangs.run_timeout_s:g} s")
        for process, seat in ((READER, self._reader), (WRITER, self._writer), *enumerate(self._workers, FIRST_WORKER)):
            # Before the lane has served, the start or change that waits for the lane has a time limit of its own.
            if self._served and seat.booting is not None and hangs.boot_hangs(process, seat.booting):
                seat.condemn(f"not ready after {hangs.boot_patience_s:.0f} s")
        reader, writer = self._reader, self._writer
        if reader.ready is not None and hangs.reader_hangs(reader.ready):
            reader.condemn(f"no sign of life for {hangs.patience_s:g} s")
        if writer.ready is not None and hangs.writer_hangs(writer.ready, writer.leaving_since_s):
            writer.condemn(f"no sign of life for {hangs.patience_s:g} s")

    def _keep_in_place(self, seat: Seat) -> None:
        places, at = self._launcher.places, self._seats.index(seat)
        cores = places.workers[at] if at < len(self._workers) else places.others
        if seat.child is not None:  # without cores of its own, a child runs on all cores of the budget
            pin(seat.child.pid, cores or [core.number for core in self._launcher.arrangement.budget.cores])

    def _seat_of(self, child: Child) -> Seat:
        return next(seat for seat in self._seats if seat.child is child)

    def _wanted_workers(self) -> list[Seat]:
        return self._workers[: self.workers]

    def _recover(self, worker: int, reason: str, verdict: KillReason | None = None) -> bool:
        """Recover the slots of a worker that has ended, and return whether a run was interrupted."""
        error = (ErrorCode.WORKER_DIED, f"the worker died while it ran this record alone, twice: {reason}")
        if verdict is not None:
            limit_s = self._hangs.run_timeout_s
            error = (ErrorCode.WORKER_HUNG, f"the record's run took longer than runTimeout ({limit_s:g} s), twice")
        interrupted = recover(self.ring, worker, self._workers[worker].wanted, error, verdict.stacks if verdict else "")
        # Ring the writer too: the worker may have died between finishing a slot and ringing.
        for bell in (*self._worker_bells, self._writer_bell):
            bell.ring()
        return interrupted
