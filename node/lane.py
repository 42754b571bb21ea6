"""One lane: its ring, its bells, and its reader, workers and writer, started in order and started again when they die.

start ──► workers load and warm ──► writer, reader ──► serving ──► drain: reader ──► ring empty ──► workers, writer ──► ended
"""

import signal
import time
from collections.abc import Iterator
from functools import partial

import msgspec
import structlog

from cluster_serving.client.errors import ErrorCode
from cluster_serving.client.process.exit_codes import ExitCode
from cluster_serving.node.arrangement import Arrangement
from cluster_serving.node.bell import Bell
from cluster_serving.node.child import Child
from cluster_serving.node.config import Config
from cluster_serving.node.crew import Crew
from cluster_serving.node.metrics import FIRST_WORKER, READER, WRITER, Figures
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.post import Post, Verdict
from cluster_serving.node.recycling import Recycling
from cluster_serving.node.ring import HANDED_OVER, Ring, State
from cluster_serving.node.slot import Geometry
from cluster_serving.node.specs import Runtime
from cluster_serving.node.topology.pinning import pin
from cluster_serving.node.watch import Watch

log = structlog.get_logger(__name__)

_SLOWEST_REPLY_S = 5.0  # of Redis, beyond redisTimeout, before a silent reader or writer counts as hung
_CONSUMES_S = 5.0  # without a sign of life, and the reader does not consume, whatever it said last


class Lane:
    """The processes of one lane, as the supervisor sees them.

    Args:
        config: a complete one.
        model: what it serves.
        node: the name of the node.
        generation: how many lanes the node has had before this one.
        arrangement: how many workers it has, and where each process runs.
    """

    def __init__(self, config: Config, model: Detected, node: str, generation: int, arrangement: Arrangement) -> None:
        self.config = config
        self.model = model
        self.generation = generation
        self.arrangement = arrangement
        workers = arrangement.workers
        # For each worker one that runs, one that waits and one that is published; for the reader two to fill; one to spare.
        geometry = Geometry(
            slots=3 * workers + 3, batch=arrangement.choice.batch, slot_bytes=config.slot_bytes, workers=workers
        )
        self.ring = Ring(geometry)
        self._bells: list[Bell] = []
        try:
            self._bells += (Bell() for _ in range(2 + workers))
        except OSError:
            self.close()
            raise
        self._reader_bell, self._writer_bell, *self._worker_bells = self._bells
        self._crew = Crew(config, model, node, generation, arrangement, self.ring, self._bells)
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.runtime = arrangement.choice.runtime
        self.failure: tuple[str, int] | None = None
        """Why a child ended before the lane has ever served, and the exit code for it."""
        self._restarts = self._recycled = 0
        self.threads_computing = 0
        """How many threads of one worker computed at a time, at most, when it was warmed; 0: not known."""
        self.raw = False
        """Whether records go to the workers as they came."""
        self._begun = False  # writer and reader have been started, or never will be
        self._served = False
        self._draining = False
        self._reader = Post("reader", lambda: self._crew.reader(self.inputs, self.raw))
        self._writer = Post("writer", self._crew.writer)
        self._workers = [Post(f"worker-{index}", partial(self._new_worker, index)) for index in range(workers)]
        self._posts = (*self._workers, self._writer, self._reader)
        self._recycling = Recycling(self.ring, self._workers, config.max_worker_memory)
        patience_s = max(config.lease_s, config.redis_timeout / 1000 + _SLOWEST_REPLY_S)
        self._watch = Watch(self.ring, config.run_timeout_s, patience_s)

    @property
    def workers(self) -> int:
        """How many workers it has when nobody lacks."""
        return len(self._workers)

    @property
    def workers_ready(self) -> int:
        """How many workers have loaded the model and run."""
        return sum(post.ready is not None for post in self._workers)

    @property
    def serving(self) -> bool:
        """Whether a record that is enqueued now will be answered without any child being started first."""
        return self._reader.ready is not None and self._writer.ready is not None and self.workers_ready > 0

    @property
    def consuming(self) -> bool:
        """Whether it serves, and takes entries from Redis."""
        return self.serving and self.ring.consuming and self.ring.silent_s(READER) < _CONSUMES_S

    @property
    def ended(self) -> bool:
        """Whether no child is left, and none will be started."""
        return not any(post.child or post.wanted for post in self._posts)

    @property
    def model_hash(self) -> str:
        """The fingerprint of the model; empty until it is known."""
        return self._crew.model_hash

    @property
    def figures(self) -> Figures:
        """What its processes have counted and measured, and how often one of them was replaced."""
        replaced = Figures({"restarts": self._restarts, "recycled": self._recycled})
        return replaced + Figures.of(self.ring.counters, self.ring.measures)

    def children(self) -> Iterator[Child]:
        """Those that run."""
        return (post.child for post in self._posts if post.child is not None)

    def start(self) -> None:
        """Start the workers; the others follow when the model is known.

        Where the runtime is to be chosen, the first worker does so alone, and the rest take what it chose. Beside a lane that
        serves, only one loads at a time.
        """
        for post in self._workers[:1] if self.runtime.is_open or self.generation else self._workers:
            self._fill(post)

    def hear(self, child: Child) -> None:
        """A child has spoken on its ready pipe."""
        child.hear()
        if child.ready is None:
            return
        log.info("ready", child=child.name, pid=child.pid, seconds=round(child.ready_s - child.started_s, 2))
        self._watch.booted(child)
        if child.kind == "worker":
            self.inputs = msgspec.convert(child.ready["inputs"], tuple[TensorSpec, ...])
            self.outputs = msgspec.convert(child.ready["outputs"], tuple[TensorSpec, ...])
            self.raw = bool(child.ready["raw"])
            self.runtime = msgspec.convert(child.ready["runtime"], Runtime)
            self.threads_computing = max(self.threads_computing, child.ready["threads"]["computing"])
            post = self._post_of(child)
            self._recycling.welcome(post)
            self.ring.set_serving(self._workers.index(post), True)
            self._reader_bell.ring()
            self._start_others()
        elif child.kind == "writer" and self._writer.wanted and not (self._reader.wanted or self._draining):
            self._fill(self._reader)
        self._served = self._served or self.serving

    def bury(self, child: Child, reason: str) -> None:
        """A child has died: put its slots into order; another one follows."""
        child.hear()
        child.close()
        post = self._post_of(child)
        verdict, post.verdict = post.verdict, None
        interrupted = child.kind == "worker" and self._recover(self._workers.index(post), reason, verdict)
        left = post.recycling and child.ready is not None and reason == "exit code 0"
        post.recycling = left
        if post.wanted and left:
            post.due_s = time.monotonic()
        elif post.wanted:
            why = child.failure[0] if child.failure else verdict.reason if verdict else reason
            log.error("died", child=child.name, pid=child.pid, reason=why)
            post.wait()
            if interrupted:
                post.due_s = (
                    time.monotonic()
                )  # the halves come to an end, and neighbours of the one at fault wait for it
            if not self._served and child.ready is None:
                told = f"the {child.name} ended while it started: {reason}", int(ExitCode.FAILED)
                self.failure = self.failure or child.failure or told
        post.child = None

    def look_after(self) -> None:
        """Once in each turn of the supervisor: end who hangs, start who is due, and let all go when the lane is drained."""
        self._kill_hung()
        self._begin()
        self._revive()
        if self._draining and self._reader.child is None and not self.ring.every(*HANDED_OVER):
            self._draining = False  # once is enough
            for post in self._posts:
                post.dismiss()

    def rearrange(self, arrangement: Arrangement) -> None:
        """Move its processes, and those that follow them, to other places; their number stays."""
        self.arrangement = self._crew.arrangement = arrangement
        allowed = [core.number for core in arrangement.budget.cores]
        places = (*arrangement.places.workers, arrangement.places.others, arrangement.places.others)
        for post, cores in zip(self._posts, places, strict=True):
            if post.child is not None:
                pin(post.child.pid, cores or allowed)

    def limit_memory(self) -> None:
        """Replace a worker that takes too much; now and then."""
        if not self._draining:
            self._recycling.look()

    def drain(self) -> None:
        """Let the reader hand over what it has read and end; the others follow when all of it is published."""
        self._begun = self._draining = True
        self._reader.dismiss()

    def kill(self) -> None:
        """End everybody now."""
        self._begun = True
        for post in self._posts:
            post.dismiss(signal.SIGKILL)

    def close(self) -> None:
        """Give back bells and ring; the kernel frees the segment when the last child has gone."""
        for bell in self._bells:
            bell.close()
        self.ring.close()

    def _revive(self) -> None:
        for post in self._posts:
            if post.is_due:
                if post.recycling:
                    self._recycled += 1
                else:
                    self._restarts += 1
                log.info("starting another", child=post.name)
                self._fill(post)

    def _fill(self, post: Post) -> None:
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
            # Before the lane has served, who waits for it has a limit of his own.
            if self._served and post.booting is not None and watch.boot_hangs(process, post.booting):
                post.condemn(f"not ready after {watch.boot_patience_s:.0f} s")
        reader, writer = self._reader, self._writer
        if reader.ready is not None and watch.reader_hangs(reader.ready):
            reader.condemn(f"no sign of life for {watch.patience_s:g} s")
        if writer.ready is not None and watch.writer_hangs(writer.ready, writer.leaving_since_s):
            writer.condemn(f"no sign of life for {watch.patience_s:g} s")

    def _post_of(self, child: Child) -> Post:
        return next(post for post in self._posts if post.child is child)

    def _start_others(self) -> None:
        """A worker is ready: start those that wait for it."""
        if self._begun:
            return
        for post in self._workers:
            if not post.wanted:
                self._fill(post)
                if self.generation:
                    return

    def _begin(self) -> None:
        """Start writer and reader, once every worker is ready and the model's fingerprint known."""
        if self._begun or self.workers_ready < len(self._workers) or self._crew.hashing:
            return
        self._begun = True
        self._fill(self._writer)
        # Beside a lane that serves the reader waits for the writer: what it took earlier would wait, 0.3 s as measured.
        if not self.generation:
            self._fill(self._reader)

    def _new_worker(self, index: int) -> Child:
        return self._crew.worker(index, self.runtime)

    def _recover(self, worker: int, reason: str, verdict: Verdict | None) -> bool:
        """Leave what a dead worker was running to its successor, and give what waited for it to another one.

        What one worker died with must not come to the next: a lane where all die stands still.

        Returns:
            Whether a run was interrupted.
        """
        self.ring.set_serving(worker, False)
        running, waiting = self.ring.owned(worker, State.RUNNING), self.ring.owned(worker, State.READY)
        error = (ErrorCode.WORKER_DIED, f"the worker died while it ran this record alone, twice: {reason}")
        if verdict is not None:
            limit_s = self._watch.run_timeout_s
            error = (ErrorCode.WORKER_HUNG, f"the record's run took longer than runTimeout ({limit_s:g} s), twice")
        for slot in running:
            self.ring.slots[slot].worker_died(error, verdict.stacks if verdict else "")
            self._hand_over(slot, worker)
        for slot in waiting:
            least = self.ring.least_loaded()
            if least is not None:
                self._hand_over(slot, least[0])
        # The writer too: the worker may have died between finishing a slot and ringing.
        for bell in (*self._worker_bells, self._writer_bell):
            bell.ring()
        return bool(running)

    def _hand_over(self, slot: int, worker: int) -> None:
        self.ring.slots[slot].handed_over()
        self.ring.hand_over("supervisor", slot, worker)
