"""CPU time that processes have used, and the processes of a node and of Redis."""

from collections.abc import Iterable

import psutil
import redis

from bench.stage import Stage


def used_s(processes: Iterable[psutil.Process]) -> float:
    """CPU seconds so far, of all their threads, in user and kernel."""
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def of_node(place: Stage, job: str) -> list[psutil.Process]:
    """The supervisor, reader, writer and workers of the one node of a job."""
    supervisor = psutil.Process(place.heartbeat(job)["pid"])
    return [supervisor, *supervisor.children()]


def of_redis(place: Stage) -> psutil.Process:
    """The Redis of a stage."""
    with redis.Redis(port=place.port) as client:
        return psutil.Process(client.info("server")["process_id"])
