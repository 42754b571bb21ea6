"""Times and counts of a frontend's processes, in memory shared by all processes.

    | header | row of process 0 | row of process 1 | ...

Each row has one writer, its process, and no lock. The process that answers `/metrics` adds up the rows. A dead process leaves
its row to its successor, so no count goes back. The memory is an anonymous memfd, inherited by its descriptor number. The
kernel frees the memory with the last process.
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
    """Timers of the work on a request. All times are seconds."""

    OVERALL = 0  # a request of any kind, to its answer
    PREDICT = auto()  # a request answered with predictions, to its answer
    METRICS = auto()  # a request for /metrics, to its answer
    FIND_MODEL = auto()  # finding the model that a request names
    LIST_MODELS = auto()  # listing models, or the versions of one
    MAKE_RECORDS = auto()  # from the body of a request to records
    INFERENCE = auto()  # the records of a request, from before the enqueuing to the last answer
    # the part of INFERENCE until Redis has taken the records: a pipeline of XADDs, and the wait for its reply
    REDIS_PUT = auto()
    REDIS_WAIT = auto()  # the part of INFERENCE that follows
    # decoding the results of one read of the reply stream, without the time that the read blocked
    REDIS_GET = auto()
    MAKE_RESPONSE = auto()  # from results to the body of a response


class Count(IntEnum):
    """Counts of requests and records."""

    IN_FLIGHT = 0  # requests that have begun and not ended, the only count that goes back
    RECORDS = auto()  # records that requests brought for a queue
    LIMITED = auto()  # requests refused: no token soon enough
    QUEUE_FULL = auto()  # requests refused: no room in the queue
    PREDICTED_WAIT = auto()  # requests refused: their results would have come too late
    CALLBACKS = auto()  # results posted to callbacks
    CALLBACKS_FAILED = auto()  # attempts to post a result that failed


class Reading(msgspec.Struct, frozen=True):
    """All times and counts, added up over the processes.

    Attributes:
        uptime_s: seconds since the start of the frontend.
        processes: number of live processes.
        timers: times by timer.
        models: times by name and version: predictions of a request, and runs of the model for these predictions.
        counts: value of each count.
        requests: number of answered requests, by route and status.
    """

    uptime_s: float
    processes: int
    timers: dict[Timer, Times]
    models: dict[Key, tuple[Times, Times]]
    counts: dict[Count, int]
    requests: dict[Key, int]


class Timers:
    """Rows of all processes.

    Args:
        processes: number of processes.
        fd: descriptor of inherited memory. None: make the memory.
        clock: seconds, the same in all processes.

    Attributes:
        fd: descriptor of the memory, for the processes to inherit.
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
        """Return the row of this process. From now on only this process writes the row."""
        own = WorkerTimers(self._rows[process], self._clock)
        self._own.append(own)
        return own

    def seen_s(self, process: int) -> float:
        """Return the time of the last sign of life of a process, or 0 before the first."""
        return self._rows[process].seen_s[0]

    def read(self) -> Reading:
        """Return the times and counts of all processes. Times of other processes count up to their last `flush`."""
        for own in self._own:
            own.flush()
        alive = [row for row in self._rows if row.is_alive]
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
    """Times and counts of one process, for use from one thread.

    Times are gathered in lists and flushed together, at a twentieth of the cost of noting each time in the shared memory.
    """

    def __init__(self, row: Row, clock: Callable[[], float]) -> None:
        self._row = row
        self._clock = clock
        self._timers = [Pending(row.timer(timer)) for timer in Timer]
        self._models: dict[Key, tuple[Pending, Pending]] = {}
        row.process[0] = os.getpid()
        row.counts[Count.IN_FLIGHT] = 0

    def observe(self, timer: Timer, seconds: float) -> None:
        """Note a time."""
        self._timers[timer].seconds.append(seconds)

    def observe_model(self, name: str, version: str, seconds: float, run_s: float | None) -> None:
        """Note the predictions of one request.

        Args:
            name: name of the model.
            version: version of the model.
            seconds: time from before the enqueuing of the records to the last answer.
            run_s: time of the model's run for the batch of the records, or of one record. None: the model did not run.
        """
        found = self._models.get((name, version))
        if found is None:
            blocks = self._row.model_timers(self._row.model_keys.number((name, version)))
            found = self._models[name, version] = Pending(blocks[0]), Pending(blocks[1])
        calls, runs = found
        calls.seconds.append(seconds)
        if run_s is not None:
            runs.seconds.append(run_s)

    def count(self, what: Count, number: int = 1) -> None:
        """Add to a count. A negative number is for `IN_FLIGHT` requests that have ended."""
        self._row.counts[what] += number

    def value(self, what: Count) -> int:
        """Return a count of this process."""
        return self._row.counts[what]

    def count_request(self, route: str, status: int) -> None:
        """Count an answered request."""
        self._row.requests[self._row.request_keys.number((route, str(status)))] += 1

    def flush(self) -> None:
        """Show the observed times to the other processes, and a sign of life to the server. Call several times a second."""
        now_s = self._row.seen_s[0] = self._clock()
        for timer in self._timers:
            timer.flush(now_s)
        for timers in self._models.values():
            for timer in timers:
                timer.flush(now_s)
