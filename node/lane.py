"""One lane: its ring, its bells, and its reader, workers and writer, started in order and started again when they die.

start ──► workers load and warm ──► writer, reader ──► serving ──► drain: reader ──► ring empty ──► workers, writer
"""

import signal
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import structlog

from cluster_serving.client.errors import ErrorCode
from cluster_serving.node.backoff import Backoff
from cluster_serving.node.bell import Bell
from cluster_serving.node.child import Child, Placement
from cluster_serving.node.config import Config
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.ring import HANDED_OVER, Ring, State
from cluster_serving.node.slot import Geometry
from cluster_serving.node.specs import DecodeOptions, Engine, LaneSpec, ReaderSpec, WorkerSpec, WriterSpec

log = structlog.get_logger(__name__)

DEFAULT_BATCH = 32
_STEADY_S = 10.0  # a child that has lived so long is no longer in a restart loop
# The limit of processing/image.py; OpenCV reads it when it is imported.
_WORKER_ENVIRONMENT = {"OPENCV_IO_MAX_IMAGE_PIXELS": "178956970"}


class Post(msgspec.Struct):
    """A place in the lane that a child fills; another one takes it when the child dies."""

    name: str
    start: Callable[[], Child]
    backoff: Backoff
    child: Child | None = None
    due_s: float = 0.0
    wanted: bool = False


class Lane:
    """The processes of one lane, as the supervisor sees them."""

    def __init__(self, config: Config, node: str, model: Detected, workers: int, threads: int) -> None:
        self._config = config
        self._model = model
        self._placement = Placement(threads=threads)
        batch = config.batch_size or DEFAULT_BATCH
        # For each worker one that runs, one that waits and one that is published; for the reader two to fill; one to spare.
        geometry = Geometry(slots=3 * workers + 3, batch=batch, slot_bytes=config.slot_bytes, workers=workers)
        self.ring = Ring(geometry)
        reader_bell, writer_bell, worker_bells = Bell(), Bell(), [Bell() for _ in range(workers)]
        self._worker_bells = worker_bells
        self._bells = [reader_bell, writer_bell, *worker_bells]
        self._reader_bell, self._writer_bell = reader_bell, writer_bell
        self._spec = LaneSpec(
            job=config.job_name,
            node=node,
            redis=config.redis_settings(),
            geometry=geometry,
            ring_fd=self.ring.fd,
            reader_bell=reader_bell.fileno(),
            writer_bell=writer_bell.fileno(),
            worker_bells=tuple(bell.fileno() for bell in worker_bells),
        )
        self.inputs: tuple[TensorSpec, ...] = ()
        self.outputs: tuple[TensorSpec, ...] = ()
        self.engine: Engine = config.engine
        self._raw = False  # records go to the workers as they came
        self.restarts = 0
        self._begun = False  # writer and reader have been started, or never will be
        self._reader = Post("reader", self._new_reader, Backoff())
        self._writer = Post("writer", self._new_writer, Backoff())
        self._workers = [
            Post(f"worker-{index}", partial(self._new_worker, index), Backoff()) for index in range(workers)
        ]

    @property
    def batch(self) -> int:
        """Rows of a batch, at most."""
        return self.ring.geometry.batch

    @property
    def workers_ready(self) -> int:
        """How many workers have loaded the model and run."""
        return sum(_is_ready(post) for post in self._workers)

    @property
    def serving(self) -> bool:
        """Whether a record that is enqueued now will be answered without any child being started first."""
        return _is_ready(self._reader) and _is_ready(self._writer) and self.workers_ready > 0

    @property
    def ended(self) -> bool:
        """Whether no child is left, and none will be started."""
        return not any(post.child or post.wanted for post in self._posts())

    def children(self) -> Iterator[Child]:
        """Those that run."""
        for post in self._posts():
            if post.child is not None:
                yield post.child

    def start_workers(self) -> None:
        """Start the workers; the others follow when the model is known.

        Where the engine is to be chosen, the first worker does so alone, and the rest take what it chose.
        """
        for post in self._workers[:1] if self.engine == "auto" else self._workers:
            self._start(post)

    def hear(self, child: Child) -> None:
        """A child has spoken on its ready pipe."""
        child.hear()
        if child.ready is None:
            return
        log.info("ready", child=child.name, pid=child.pid, seconds=round(time.monotonic() - child.started_s, 2))
        if child.kind == "worker":
            self.inputs = msgspec.convert(child.ready["inputs"], tuple[TensorSpec, ...])
            self.outputs = msgspec.convert(child.ready["outputs"], tuple[TensorSpec, ...])
            self._raw = bool(child.ready["raw"])
            self.engine = child.ready["engine"]
            self.ring.set_serving(self._index(child), True)
            self._reader_bell.ring()
            for post in self._workers:
                if not (post.wanted or self._begun):
                    self._start(post)
            if self.workers_ready == len(self._workers) and not self._begun:
                self._begun = True
                self._start(self._writer)
                self._start(self._reader)

    def bury(self, child: Child, reason: str) -> None:
        """A child has died: put its slots into order; `revive` starts another one."""
        child.hear()
        child.close()
        post = next(post for post in self._posts() if post.child is child)
        post.child = None
        if child.kind == "worker":
            self._recover(self._index(child), reason)
        why = child.failure[0] if child.failure else reason
        if not post.wanted:
            return
        log.error("died", child=child.name, pid=child.pid, reason=why)
        if time.monotonic() - child.started_s > _STEADY_S:
            post.backoff.reset()
        post.due_s = time.monotonic() + post.backoff.next_s()

    def revive(self) -> None:
        """Start the children that are due again."""
        for post in self._posts():
            if post.wanted and post.child is None and time.monotonic() >= post.due_s:
                self.restarts += 1
                log.info("starting another", child=post.name)
                try:
                    self._start(post)
                except OSError as error:
                    post.due_s = time.monotonic() + post.backoff.next_s()
                    log.error("cannot start a process", child=post.name, reason=str(error))

    def stop_reading(self) -> None:
        """Let the reader hand over what it has read and end."""
        self._begun = True
        self._dismiss(self._reader)

    @property
    def drained(self) -> bool:
        """Whether the reader has ended and all that it handed over has been published."""
        return self._reader.child is None and not self.ring.every(*HANDED_OVER)

    def dismiss(self) -> None:
        """Let everybody end who has nothing more to do."""
        for post in self._posts():
            self._dismiss(post)

    def kill(self) -> None:
        """End everybody now."""
        self._begun = True
        for post in self._posts():
            self._dismiss(post, signal.SIGKILL)

    def close(self) -> None:
        """Give back bells and ring; the kernel frees the segment when the last child has gone."""
        for bell in self._bells:
            bell.close()
        self.ring.close()

    def _posts(self) -> tuple[Post, ...]:
        return (*self._workers, self._writer, self._reader)

    def _index(self, worker: Child) -> int:
        return next(
            index for index, post in enumerate(self._workers) if post.child is worker or post.name == worker.name
        )

    def _start(self, post: Post) -> None:
        post.wanted = True
        post.child = post.start()

    def _dismiss(self, post: Post, number: int = signal.SIGTERM) -> None:
        post.wanted = False
        if post.child is not None:
            post.child.signal(number)

    def _recover(self, worker: int, reason: str) -> None:
        """Give a dead worker's slots to one that serves, or leave them for its successor."""
        self.ring.set_serving(worker, False)
        died = (ErrorCode.WORKER_DIED, f"the worker died while it ran this record alone, twice: {reason}")
        for slot in self.ring.owned(worker, State.RUNNING):
            self.ring.slots[slot].worker_died(died)
            self.ring.hand_over("supervisor", slot, worker)
        for slot in self.ring.owned(worker, State.READY):
            least = self.ring.least_loaded()
            if least is not None:
                self.ring.hand_over("supervisor", slot, least[0])
        for bell in self._worker_bells:
            bell.ring()

    def _descriptors(self) -> list[int]:
        return [self._spec.ring_fd, *(bell.fileno() for bell in self._bells)]

    def _new_worker(self, index: int) -> Child:
        config = self._config
        spec = WorkerSpec(
            lane=self._spec,
            worker=index,
            model=self._model,
            options=config.load_options(self._placement.threads),
            engine=self.engine,
            images=config.image_options(),
            post_processing=config.post_processing,
            labels=config.labels,
            processing=config.processing,
            model_secrets=config.model_secrets(),
            record_secrets=config.record_secrets(),
        )
        return Child("worker", f"worker-{index}", spec, self._placement, self._descriptors(), _WORKER_ENVIRONMENT)

    def _new_reader(self) -> Child:
        spec = ReaderSpec(
            lane=self._spec,
            consumer=self._spec.node,
            inputs=self.inputs,
            max_batch_delay_ms=self._config.max_batch_delay_ms,
            decoding=DecodeOptions(
                already_batched=self._config.input_already_batched,
                sparse_layout=self._config.sparse_layout,
                raw=self._raw,
                encrypted=self._config.record_encrypted,
            ),
        )
        return Child("reader", "reader", spec, Placement(), self._descriptors())

    def _new_writer(self) -> Child:
        ttl_ms = round(self._config.result_time_to_live_s * 1000)
        spec = WriterSpec(lane=self._spec, result_ttl_ms=ttl_ms, legacy_filter_text=self._config.legacy_filter_text)
        return Child("writer", "writer", spec, Placement(), self._descriptors())


def _is_ready(post: Post) -> bool:
    return post.child is not None and post.child.ready is not None
