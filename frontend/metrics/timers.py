"""What the processes of a frontend measure and count, in memory that all of them share.

    | header | row of process 0 | row of process 1 | ...

Each row has one writer, its process, and no lock; whoever answers `/metrics` adds up the rows. A process that died leaves its
row to the one that is started in its place: no count goes back. The memory is an anonymous memfd that the processes inherit by
its number; the kernel frees it with the last of them.
"""

import mmap
import os
import time
from collections.abc import Callable
from enum import IntEnum, auto

import msgspec

from cluster_serving.frontend.metrics.buckets import Times
from cluster_serving.frontend.metrics.timer_row import Blocks, Key, Pending, Row, times


class Timer(IntEnum):
    """What is timed; always seconds."""

    OVERALL = 0  # a request of any kind, to its answer
    PREDICT = auto()  # a request that is answered with predictions, to its answer
    METRICS = auto()  # a request for /metrics, to its answer
    FIND_MODEL = auto()  # finding the model that a request names
    LIST_MODELS = auto()  # listing models, or the versions of one
    MAKE_RECORDS = auto()  # from the body of a request to records
    INFERENCE = auto()  # the records of a request, from before they are enqueued until the last is answered
    REDIS_PUT = (
        auto()
    )  # the part of INFERENCE until Redis has taken the records: a pipeline of XADDs, and the wait for it
    REDIS_WAIT = auto()  # the part of INFERENCE that follows
    REDIS_GET = (
        auto()
    )  # making results of what one read of the reply stream brought; not the time that the read blocked
    MAKE_RESPONSE = auto()  # from results to the body of a response


class Count(IntEnum):
    """What is counted."""

    IN_FLIGHT = 0  # requests that have begun and not ended; the only one that goes back
    RECORDS = auto()  # records that requests brought for a queue
    LIMITED = auto()  # requests refused: there was no token soon enough
    QUEUE_FULL = auto()  # requests refused: there was no room in the queue
    PREDICTED_WAIT = auto()  # requests refused: their results would have come too late


class Reading(msgspec.Struct, frozen=True):
    """Everything, added up over the processes.

    Attributes:
        uptime_s: since the frontend was started.
        processes: how many live.
        timers: what each has observed.
        models: by name and version: the predictions of a request, and the runs of the model that they were in.
        counts: by what is counted.
        requests: how many were answered, by route and status.
    """

    uptime_s: float
    processes: int
    timers: dict[Timer, Times]
    models: dict[Key, tuple[Times, Times]]
    counts: dict[Count, int]
    requests: dict[Key, int]


class Timers:
    """The rows of all processes.

    Args:
        processes: how many there are.
        fd: of the memory, where it was inherited; None: make it.
        clock: seconds, the same in all processes.

    Attributes:
        fd: of the memory, to be inherited by the processes.
    """

    def __init__(self, processes: int, fd: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        row = Row.size(len(Timer))
        size = mmap.PAGESIZE + processes * row
        self.fd = os.memfd_create("cluster-serving-timers") if fd is None else fd
        if fd is None:
            os.ftruncate(self.fd, size)
        view = memoryview(mmap.mmap(self.fd, size))
        self._clock = clock
        self._begun_s = view[:8].cast("d")
        if fd is None:
            self._begun_s[0] = clock()
        self._own: list[WorkerTimers] = []
        self._rows = [Row(view[start : start + row], len(Timer)) for start in range(mmap.PAGESIZE, size, row)]

    def of(self, process: int) -> "WorkerTimers":
        """The row of this process, which it alone writes from now on."""
        own = WorkerTimers(self._rows[process], self._clock)
        self._own.append(own)
        return own

    def read(self) -> Reading:
        """What all have observed and counted so far; what other processes have observed, up to their last `flush`."""
        for own in self._own:
            own.flush()
        alive = [row for row in self._rows if _is_alive(row.process[0])]
        requests: dict[Key, int] = {}
        models: dict[Key, list[tuple[Blocks, Blocks]]] = {}
        for row in self._rows:
            for number, key in enumerate(row.request_keys.all()):
                requests[key] = requests.get(key, 0) + row.requests[number]
            for number, key in enumerate(row.model_keys.all()):
                models.setdefault(key, []).append(row.model_timers(number))
        return Reading(
            uptime_s=self._clock() - self._begun_s[0],
            processes=len(alive),
            timers={timer: times([row.timer(timer) for row in self._rows]) for timer in Timer},
            models={
                key: (times([calls for calls, _ in found]), times([runs for _, runs in found]))
                for key, found in models.items()
            },
            counts={
                count: sum(row.counts[count] for row in (alive if count == Count.IN_FLIGHT else self._rows))
                for count in Count
            },
            requests=requests,
        )


class WorkerTimers:
    """What one process measures and counts; use it from one thread.

    Times are gathered in lists, which costs a twentieth of noting each in the shared memory, and flushed together.
    """

    def __init__(self, row: Row, clock: Callable[[], float]) -> None:
        self._row = row
        self._clock = clock
        self._timers = [Pending(row.timer(timer)) for timer in Timer]
        self._models: dict[Key, tuple[Pending, Pending]] = {}
        row.process[0] = os.getpid()
        row.counts[Count.IN_FLIGHT] = 0

    def observe(self, timer: Timer, seconds: float) -> None:
        """Take note of a time."""
        self._timers[timer].seconds.append(seconds)

    def observe_model(self, name: str, version: str, seconds: float, run_s: float | None) -> None:
        """Take note of the predictions of one request.

        Args:
            name: of the model.
            version: of the model.
            seconds: from before the records were enqueued until the last was answered.
            run_s: how long the model ran for the batch that they, or one of them, were in; None: it did not.
        """
        calls, runs = self._models.get((name, version)) or self._model(name, version)
        calls.seconds.append(seconds)
        if run_s is not None:
            runs.seconds.append(run_s)

    def count(self, what: Count, number: int = 1) -> None:
        """Count so many more; a negative number for those `IN_FLIGHT` that have ended."""
        self._row.counts[what] += number

    def count_request(self, route: str, status: int) -> None:
        """Count a request that was answered."""
        self._row.requests[self._row.request_keys.number((route, str(status)))] += 1

    def flush(self) -> None:
        """Let the other processes see what has been observed so far; call it several times a second."""
        now_s = self._clock()
        for timer in self._timers:
            timer.flush(now_s)
        for timers in self._models.values():
            for timer in timers:
                timer.flush(now_s)

    def _model(self, name: str, version: str) -> tuple[Pending, Pending]:
        calls, runs = self._row.model_timers(self._row.model_keys.number((name, version)))
        found = self._models[name, version] = Pending(calls), Pending(runs)
        return found


def _is_alive(process: int) -> bool:
    if not process:
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):  # nobody, or somebody else who has got the number since
        return False
    return True
