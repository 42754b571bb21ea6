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
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import FIRST_WORKER, READER, WRITER, Figures
from cluster_serving.node.ring.ring import HANDED_OVER, Ring, State
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.hangs import HangDetector
from cluster_serving.node.supervisor.launcher import Launcher
from cluster_serving.node.supervisor.memory_limit import MemoryLimit
from cluster_serving.node.supervisor.recovery import recover
from cluster_serving.node.supervisor.seat import KillReason, Seat
from cluster_serving.node.supervisor.served_model import ServedModel
from cluster_serving.node.topology import memory
from cluster_serving.node.topology.pinning import pin
from cluster_serving.node.topology.placement import LanePlaces

log = structlog.get_logger(__name__)

_SLOWEST_REPLY_S = 5.0  # of Redis, beyond redisTimeout, before a silent reader or writer counts as hung
_CONSUMES_S = 5.0  # a reader that is silent for so long does not consume, whatever its last report was


def slots_for(workers: int) -> int:
    """Return the number of slots: for each worker one running, one waiting and one published, for the reader two, and a spare."""
    return 3 * workers + 3


class Lane:
    """Processes of one lane, as the supervisor sees them.

    Args:
        generation: model and configuration to serve.
        number: number of the lane among the lanes of its generation.
        first_worker: number of workers that the preceding lanes may have.
        places: number of workers, and the cores of each process.
        room: largest number of workers that the lane may have later, at most `LARGEST_LANE`.
    """

    def __init__(self, generation: ServedModel, number: int, first_worker: int, places: LanePlaces, room: int) -> None:
        config, batch = generation.config, generation.arrangement.choice.batch
        self._generation = generation
        self.room = room
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
        self._launcher = crew = Launcher(generation, number, first_worker, places, self.ring, self._bells)
        self.failure: tuple[str, int] | None = None
        """Reason and exit code for a child that ended before the lane had ever served, or None."""
        self._rearranged_s = float("-inf")
        self._restarts = self._recycled = 0
        self._served = False
        self._draining = False
        self._reader = Seat(crew.name_of("reader"), crew.reader)
        self._writer = Seat(crew.name_of("writer"), crew.writer)
        self._workers = [Seat(crew.name_of_worker(index), partial(crew.worker, index)) for index in range(room)]
        self._posts = (*self._workers, self._writer, self._reader)
        self._recycling = MemoryLimit(self.ring, self._workers, config.max_worker_memory)
        patience_s = max(config.lease_s, config.redis_timeout / 1000 + _SLOWEST_REPLY_S)
        self._watch = HangDetector(self.ring, config.run_timeout_s, patience_s)

    @property
    def workers_ready(self) -> int:
        """Number of workers that have loaded the model and run."""
        return sum(post.ready is not None for post in self._wanted())

    @property
    def lacks_workers(self) -> bool:
        """True while a wanted worker has never been started, or has not been started again after a dismissal."""
        return any(post.vacant for post in self._wanted())

    @property
    def loads(self) -> bool:
        """True while a worker is booting."""
        return any(post.booting is not None for post in self._wanted())

    @property
    def serving(self) -> bool:
        """True while a record enqueued now would be answered without starting a child first."""
        return self._reader.ready is not None and self._writer.ready is not None and self.workers_ready > 0

    @property
    def consuming(self) -> bool:
        """True while the lane serves and takes entries from Redis."""
        return self.serving and self.ring.consuming and self.ring.silent_s(READER) < _CONSUMES_S

    @property
    def ended(self) -> bool:
        """True when no child is left, and no child will be started."""
        return not any(post.child or post.wanted for post in self._posts)

    @property
    def figures(self) -> Figures:
        """Counts and measurements of the lane's processes, and the number of replacements."""
        replaced = Figures({"restarts": self._restarts, "recycled": self._recycled})
        return replaced + Figures.of(self.ring.counters, self.ring.measures)

    def children(self) -> Iterator[Child]:
        """Return the running children."""
        return (post.child for post in self._posts if post.child is not None)

    def start_worker(self) -> None:
        """Start the next missing worker."""
        self._fill(next(post for post in self._wanted() if post.vacant))

    def begin(self) -> None:
        """Start writer and reader, once every worker of every lane is ready and the model's fingerprint is known."""
        self._fill(self._writer)
        # Beside serving lanes the reader starts after the writer, because records read earlier would wait, 0.3 s as measured.
        if not self._generation.number:
            self._fill(self._reader)

    def hear(self, child: Child) -> None:
        """Read the message of a child on its ready pipe, and let a ready child take part."""
        child.hear()
        if child.ready is None:
            return
        log.info("ready", child=child.name, pid=child.pid, seconds=round(child.ready_s - child.started_s, 2))
        self._watch.booted(child)
        post = self._post_of(child)
        if post.wanted and child.started_s < self._rearranged_s:
            self._keep_in_place(post)  # the child was started for an earlier place, and may have moved there
        if child.kind == "worker":
            self._generation.learn(child.ready)
            self._recycling.welcome(post)
            self.ring.set_serving(self._workers.index(post), post.wanted)
            self._reader_bell.ring()
        elif child.kind == "writer" and self._writer.wanted and not (self._reader.wanted or self._draining):
            self._fill(self._reader)
        self._served = self._served or self.serving

    def bury(self, child: Child, reason: str) -> None:
        """Recover the slots of a dead child, and schedule a successor."""
        child.hear()
        child.close()
        post = self._post_of(child)
        verdict, post.verdict = post.verdict, None
        interrupted = child.kind == "worker" and self._recover(self._workers.index(post), reason, verdict)
        left = post.recycling and child.ready is not None and reason == "exit code 0"
        post.recycling = left and post.wanted
        if post.wanted and left:
            post.due_s = time.monotonic()
        elif post.wanted:
            why = child.failure[0] if child.failure else verdict.reason if verdict else reason
            log.error("died", child=child.name, pid=child.pid, reason=why)
            post.wait()
            if interrupted:
                # Restart at once: halving the batch comes to an end, and the neighbours of the record at fault wait.
                post.due_s = time.monotonic()
            if not self._served and child.ready is None:
                told = f"the {child.name} ended while it started: {reason}", int(ExitCode.FAILED)
                self.failure = self.failure or child.failure or told
        post.child = None

    def look_after(self) -> None:
        """Kill hung children, start due children, and end all children of a drained lane, once in each turn of the supervisor."""
        self._kill_hung()
        for post in self._posts:
            if post.is_due:
                if post.recycling:
                    self._recycled += 1
                else:
                    self._restarts += 1
                log.info("starting a successor", child=post.name)
                self._fill(post)
        # Slots that wait for a worker without successor go to its neighbours: the reader may choose a worker at the moment of
        # the worker's dismissal.
        for worker in {self.ring.owner(slot) for slot in self.ring.every(State.READY)}:
            if self._workers[worker].vacant:
                self._recover(worker, "dismissed")
        if self._draining and self._reader.child is None and not self.ring.every(*HANDED_OVER):
            self._draining = False  # once is enough
            for post in self._posts:
                post.dismiss()

    def rearrange(self, places: LanePlaces) -> None:
        """Move the processes and their successors to new places, and dismiss the workers without a place.

        Start missing workers by `start_worker` afterwards.

        Args:
            places: places of at most `room` workers. An empty place stands for all cores of the generation's budget.
        """
        self._launcher.places, self._rearranged_s = places, time.monotonic()
        self.workers = len(places.workers)
        self.ring.most_slots = slots_for(self.workers)
        for index, post in enumerate(self._workers[self.workers :], self.workers):
            if post.wanted:
                self.ring.set_serving(index, False)
                post.dismiss()
        for post in (*self._wanted(), self._writer, self._reader):
            self._keep_in_place(post)

    def limit_memory(self) -> None:
        """Replace a worker that uses too much memory. Called now and then."""
        if not self._draining:
            self._recycling.look()

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
        for post in self._posts:
            post.dismiss(signal.SIGKILL)

    def close(self) -> None:
        """Close bells and ring. The kernel frees the segment when the last child has ended."""
        for bell in self._bells:
            bell.close()
        self.ring.close()

    def _fill(self, post: Seat) -> None:
        try:
            post.start()
        except OSError as error:
            log.error("cannot start a process", child=post.name, reason=str(error))
            if not self._served:
                told = f"the {post.name} cannot be started: {error.strerror}", int(ExitCode.FAILED)
                self.failure = self.failure or told

    def _kill_hung(self) -> None:
        watch = self._watch
        watch.look()
        for index, post in enumerate(self._workers):
            if post.ready is not None and watch.worker_hangs(index, post.ready, post.leaving_since_s):
                post.condemn(f"no run has ended for runTimeout, {watch.run_timeout_s:g} s")
        for process, post in ((READER, self._reader), (WRITER, self._writer), *enumerate(self._workers, FIRST_WORKER)):
            # Before the lane has served, the start or change that waits for the lane has a time limit of its own.
            if self._served and post.booting is not None and watch.boot_hangs(process, post.booting):
                post.condemn(f"not ready after {watch.boot_patience_s:.0f} s")
        reader, writer = self._reader, self._writer
        if reader.ready is not None and watch.reader_hangs(reader.ready):
            reader.condemn(f"no sign of life for {watch.patience_s:g} s")
        if writer.ready is not None and watch.writer_hangs(writer.ready, writer.leaving_since_s):
            writer.condemn(f"no sign of life for {watch.patience_s:g} s")

    def _keep_in_place(self, post: Seat) -> None:
        places, at = self._launcher.places, self._posts.index(post)
        cores = places.workers[at] if at < len(self._workers) else places.others
        if post.child is not None:
            pin(post.child.pid, cores or [core.number for core in self._generation.arrangement.budget.cores])

    def _post_of(self, child: Child) -> Seat:
        return next(post for post in self._posts if post.child is child)

    def _wanted(self) -> list[Seat]:
        return self._workers[: self.workers]

    def _recover(self, worker: int, reason: str, verdict: KillReason | None = None) -> bool:
        """Recover the slots of a worker that has ended, and return whether a run was interrupted."""
        error = (ErrorCode.WORKER_DIED, f"the worker died while it ran this record alone, twice: {reason}")
        if verdict is not None:
            limit_s = self._watch.run_timeout_s
            error = (ErrorCode.WORKER_HUNG, f"the record's run took longer than runTimeout ({limit_s:g} s), twice")
        interrupted = recover(self.ring, worker, self._workers[worker].wanted, error, verdict.stacks if verdict else "")
        # Ring the writer too: the worker may have died between finishing a slot and ringing.
        for bell in (*self._worker_bells, self._writer_bell):
            bell.ring()
        return interrupted
