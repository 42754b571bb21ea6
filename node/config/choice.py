"""Choice of workers, threads, batch size and runtime to serve a model with, measured by tuning or set."""

from typing import NamedTuple

import msgspec

from cluster_serving.node.config.config import Config
from cluster_serving.node.models.runtime import Runtime


class Choice(msgspec.Struct, frozen=True):
    """Number of `workers`, `threads` of each worker, largest `batch` in records, and `runtime` of the model."""

    workers: int
    threads: int
    batch: int
    runtime: Runtime


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as `1 thread` or `2 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Shape(NamedTuple):
    """Number of workers, and threads of each worker."""

    workers: int
    threads: int

    @property
    def cost(self) -> tuple[int, int]:
        """Threads of all workers, then threads of a single worker. One thread per worker is usual, also without tuning."""
        return self.workers * self.threads, self.threads

    def described(self) -> str:
        """Return the shape for people, such as `3 workers x 1 thread`."""
        return f"{counted(self.workers, 'worker')} x {counted(self.threads, 'thread')}"


class Given(NamedTuple):
    """Numbers that the configuration sets. None: open for tuning."""

    workers: int | None
    threads: int | None
    batch: int | None

    @classmethod
    def by(cls, config: Config, backend: str) -> "Given":
        """Read the numbers from a config. `coreNumberPerMachine` also sets workers and threads."""
        workers, threads, batch = config.model_parallelism, config.thread_per_model, config.batch_size
        if config.core_number_per_machine > 0:
            workers, threads = config.resolved_parallelism(backend, 1)
        return cls(workers, threads, batch)

    @property
    def is_all(self) -> bool:
        """True if every number is set."""
        return None not in self
