"""Load of a node over the last seconds, from the growth of its figures between heartbeats."""

import os
from collections import deque
from contextlib import suppress
from typing import NamedTuple

import psutil

from cluster_serving.client.wire.load import STAGES, Load, ProcessLoad
from cluster_serving.node.ring.metrics import ANSWER, INFERENCE, Figures
from cluster_serving.node.topology import cpulist

_RATES_S = 10.0
_TIMES_S = 60.0
_OVERLAP_S = 0.5  # a heartbeat may come a little later than its interval


class ProcessSample(NamedTuple):
    """Use of a process at one time.

    Attributes:
        name: name of the process.
        pid: process id. 0: the process does not run.
        cores: cores that it may run on.
        cpu_s: seconds of processor time.
        busy_s: seconds in which it had work.
        blocked_s: the part of `busy_s` in which it waited for its successor.
    """

    name: str
    pid: int = 0
    cores: str = ""
    cpu_s: float = 0.0
    busy_s: float = 0.0
    blocked_s: float = 0.0

    @classmethod
    def of(cls, name: str, pid: int, busy_s: float, blocked_s: float) -> "ProcessSample":
        """Return the sample of a process, with its processor time and its cores by now."""
        with suppress(psutil.Error, OSError, ValueError):  # there is no process
            times = psutil.Process(pid).cpu_times()
            cores = cpulist.written(os.sched_getaffinity(pid))
            return cls(name, pid, cores, times.user + times.system, busy_s, blocked_s)
        return cls(name, 0, "", 0.0, busy_s, blocked_s)

    def since(self, earlier: "ProcessSample", seconds: float) -> ProcessLoad:
        """Return the work since an earlier sample of the process with the same name, `seconds` ago."""
        cpu_s = self.cpu_s - (earlier.cpu_s if earlier.pid == self.pid else 0.0)
        had_work = _share(self.busy_s - earlier.busy_s, seconds)
        blocked = min(had_work, _share(self.blocked_s - earlier.blocked_s, seconds))
        return ProcessLoad(
            name=self.name,
            pid=self.pid,
            cores=self.cores,
            cpu=round(max(0.0, cpu_s) / seconds, 3),
            busy=round(had_work - blocked, 3),
            blocked=round(blocked, 3),
        )


class Sample(NamedTuple):
    """Figures of a node at one time. Every number grows, unless a process is replaced.

    Attributes:
        at_s: time on the monotonic clock.
        figures: counts and measurements of all lanes.
        processes: use of each process.
        redis_s: seconds of processor time of Redis' main thread.
        machine_s: seconds of processor time of all processes of the machine, for each core.
        throttled_s: seconds during which the quota held the node back.
        starved_s: seconds during which a process of the machine waited for memory.
    """

    at_s: float
    figures: Figures
    processes: tuple[ProcessSample, ...] = ()
    redis_s: float = 0.0
    machine_s: float = 0.0
    throttled_s: float = 0.0
    starved_s: float = 0.0


class Recent:
    """Samples of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()

    def add(self, sample: Sample) -> Load:
        """Add the present sample, and return the load until now."""
        self._samples.append(sample)
        while sample.at_s - self._samples[0].at_s > _TIMES_S + _OVERLAP_S:
            self._samples.popleft()
        first = next(each for each in self._samples if sample.at_s - each.at_s <= _RATES_S + _OVERLAP_S)
        seconds = sample.at_s - first.at_s
        if seconds <= 0:
            return Load(busy=(0.0,) * sum(process.name.startswith("worker") for process in sample.processes))
        earlier = {process.name: process for process in first.processes}
        processes = tuple(
            process.since(earlier.get(process.name, ProcessSample(process.name)), seconds)
            for process in sample.processes
        )
        lately, minute = sample.figures.since(first.figures), sample.figures.since(self._samples[0].figures)
        counts = lately.counts
        return Load(
            records_s=(counts["answered"] + counts["failed"]) / seconds,
            errors_s=counts["failed"] / seconds,
            p50_s=minute.quantile(ANSWER, 0.5),
            p99_s=minute.quantile(ANSWER, 0.99),
            rows=counts["rows"] / counts["runs"] if counts["runs"] else 0.0,
            record_bytes=counts["read_bytes"] / counts["read"] if counts["read"] else 0.0,
            busy=tuple(process.busy for process in processes if process.name.startswith("worker")),
            reader=max((process.cpu for process in processes if process.name.startswith("reader")), default=0.0),
            writer=max((process.cpu for process in processes if process.name.startswith("writer")), default=0.0),
            redis=max(0.0, sample.redis_s - first.redis_s) / seconds,
            machine=_share(sample.machine_s - first.machine_s, seconds),
            throttled=_share(sample.throttled_s - first.throttled_s, seconds),
            starved=_share(sample.starved_s - first.starved_s, seconds),
            empty=_share(counts["empty_us"] / 1e6, seconds * sum(name.startswith("reader") for name in earlier)),
            burst=counts["read"] / counts["emptied"] if counts["emptied"] else 0.0,
            stages=_stages(lately),
            processes=processes,
        )


def _stages(lately: Figures) -> dict[str, float]:
    """Return the mean seconds of a published record in each stage. The time in the worker is split as the workers spent theirs."""
    if not (records := lately.times(ANSWER)):
        return {}
    counts = lately.counts
    mean_s = {name: counts[f"{name}_us"] / 1e6 / records for name in ("fill", "wait", "run", "publish", "write")}
    spent_s = {
        "decode": counts["decode_us"] / 1e6,
        "model": lately.total(INFERENCE),
        "store": counts["store_us"] / 1e6,
    }
    run_s, all_s = mean_s.pop("run"), sum(spent_s.values()) or 1.0
    found = mean_s | {name: run_s * part_s / all_s for name, part_s in spent_s.items()}
    found["stream"] = lately.total(ANSWER) / records - sum(found.values())
    return {name: round(max(0.0, found[name]), 6) for name in STAGES}


def _share(grown_s: float, seconds: float) -> float:
    """Return a growth as a share of the time, from 0 to 1."""
    return min(1.0, max(0.0, grown_s / seconds)) if seconds else 0.0
