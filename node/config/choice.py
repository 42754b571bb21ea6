"""What was measured to serve a model best."""

from typing import NamedTuple

import msgspec

from cluster_serving.node.config.settings import Config
from cluster_serving.node.models.runtime import Runtime


class Choice(msgspec.Struct, frozen=True):
    """So many `workers` of so many `threads`, batches of at most `batch` records, and what runs the model."""

    workers: int
    threads: int
    batch: int
    runtime: Runtime


def counted(count: int, noun: str) -> str:
    """Such as `1 thread` or `2 threads`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class Shape(NamedTuple):
    """So many workers of so many threads."""

    workers: int
    threads: int

    @property
    def cost(self) -> tuple[int, int]:
        """Threads in all, then those of a worker: one is the usual number, and what is not tuned has it."""
        return self.workers * self.threads, self.threads

    def described(self) -> str:
        """Such as `3 workers x 1 thread`."""
        return f"{counted(self.workers, 'worker')} x {counted(self.threads, 'thread')}"


class Given(NamedTuple):
    """What the configuration says; None: open."""

    workers: int | None
    threads: int | None
    batch: int | None

    @classmethod
    def by(cls, config: Config, backend: str) -> "Given":
        """`coreNumberPerMachine` says how many workers and threads, too."""
        workers, threads, batch = config.model_parallelism, config.thread_per_model, config.batch_size
        if config.core_number_per_machine > 0:
            workers, threads = config.resolved_parallelism(backend, 1)
        return cls(workers, threads, batch)

    @property
    def is_all(self) -> bool:
        """Whether nothing of it is open."""
        return None not in self
