"""Reports of a frontend's process for the autoscaler, in a stream in Redis: the share of a core that it uses, and open requests."""

import asyncio
import os
import socket
import time
from contextlib import suppress

from cluster_serving.client import keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.frontend.metrics.timers import Count, WorkerTimers

INTERVAL_S = 5.0
"""Seconds between two reports."""
_KEPT, _KEPT_MS = 1000, 60_000  # reports, and ms after the last one


class UseReporter:
    """Reporter of one process.

    Args:
        link: connection to the Redis of the job.
        job: name of the frontend's job.
        process: number of the process.
        timers: timers of the process.
    """

    def __init__(self, link: AsyncLink, job: str, process: int, timers: WorkerTimers) -> None:
        self._link = link
        self._key = keys.frontends_key(job)
        self._names = ("frontend", f"{socket.gethostname()}-{os.getppid()}", "process", str(process))
        self._timers = timers
        self._seen_s, self._cpu_s = time.monotonic(), time.process_time()

    async def run(self) -> None:
        """Report every few seconds, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.report()

    async def report(self) -> None:
        """Report the use since the last report."""
        now_s, cpu_s = time.monotonic(), time.process_time()
        share = (cpu_s - self._cpu_s) / (now_s - self._seen_s)
        self._seen_s, self._cpu_s = now_s, cpu_s
        use = ("cpu", f"{share:.3f}", "open", str(self._timers.value(Count.IN_FLIGHT)))
        with suppress(
            ConnectionLost, RedisRefused
        ):  # a later report will do; a user without the right has no autoscaler
            await self._link.call_checked(
                ("XADD", self._key, "MAXLEN", "~", _KEPT, "*", *self._names, *use), ("PEXPIRE", self._key, _KEPT_MS)
            )
