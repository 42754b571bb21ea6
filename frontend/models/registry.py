"""Jobs that the nodes of one Redis serve, the records that wait for each job, and the speed of the nodes."""

import asyncio
import math
import time
from contextlib import suppress

import structlog

from cluster_serving.client import keys
from cluster_serving.client.aio.link import AsyncLink
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.wire.heartbeat import release
from cluster_serving.frontend.job import Job, jobs_of, read_nodes

log = structlog.get_logger(__name__)

INTERVAL_S = 0.5
# Seconds after its last heartbeat during which a job counts as known, but not ready. Afterwards the job is unknown.
_REMEMBERED_S = 60.0
# Seconds after an outage of Redis within which the nodes that were ready before count as ready. Redis has only old heartbeats, or
# none, and new heartbeats come every two seconds.
_SETTLING_S = 5.0
_LEAST_OBSERVED_S = 1.5  # heartbeats come every two seconds
_LONGEST_PAUSE_S = 60


class Registry:
    """Jobs of one Redis, read twice a second.

    Attributes:
        jobs: jobs with a live node, by name. For some seconds after an outage of Redis, also the jobs that were ready before.
        reachable: whether Redis answered the last time.
        releases: releases of the live nodes that are not this frontend's.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self.jobs: dict[str, Job] = {}
        self.reachable = False
        self.releases: list[str] = []
        self._told_reachable = True
        self.described = settings.describe()
        self._link = AsyncLink(settings)
        self._seen_s: dict[str, float] = {}
        self._settled_s = -math.inf
        self._backlog: dict[str, int] = {}
        self._paces: dict[str, _Pace] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the heartbeats once, and go on in the background."""

        async def keep_looking() -> None:
            while True:
                await asyncio.sleep(INTERVAL_S)
                try:
                    await self._look()
                except Exception as error:  # the content of a heartbeat must not end the reading
                    log.error("the heartbeats of the nodes could not be read", exc_info=error)

        await self._look()
        self._task = asyncio.create_task(keep_looking())

    async def close(self) -> None:
        """Stop reading, and close the connection."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._link.close()

    def was_seen(self, job: str) -> bool:
        """Return whether a node has served a job lately, even if no node serves the job now."""
        return time.monotonic() - self._seen_s.get(job, -math.inf) < _REMEMBERED_S

    def wait_s(self, job: str) -> float:
        """Return the expected wait of a record that is enqueued now, in seconds, or 0 while nothing is known."""
        return self.time_s(job, self._backlog.get(job, 0)) or 0

    def time_s(self, job: str, records: int) -> float | None:
        """Return the seconds in which the nodes of a job finish a number of records, or None while nothing is known."""
        rate = self._paces[job].rate if job in self._paces else 0
        return records / rate if rate > 0 else None

    def retry_after_s(self, job: str) -> int:
        """Return the whole seconds after which a refused request should be tried again."""
        return min(_LONGEST_PAUSE_S, max(1, math.ceil(self.wait_s(job))))

    async def _look(self) -> None:
        broken = not self.reachable or self._link.is_stale  # an outage may be shorter than the time between two looks
        try:
            jobs = await self._read_jobs()
            if not jobs or self.jobs.keys() - jobs.keys():
                # No node writes to an old master any more, and no answer to a read tells so: a new connection asks for the master.
                await self._link.close()
                jobs = await self._read_jobs()
            lengths = await self._link.call(*(("XLEN", name) for name in jobs)) if jobs else []
        except (ConnectionLost, RedisRefused) as error:
            self._tell(False, str(error))
            return
        self._backlog = {name: length for name, length in zip(jobs, lengths, strict=True) if isinstance(length, int)}
        now_s = time.monotonic()
        for name, job in jobs.items():
            self._seen_s[name] = now_s
            self._paces.setdefault(name, _Pace()).observe(job, self._backlog.get(name, 0), now_s)
        if self.jobs and broken:
            self._settled_s = now_s + _SETTLING_S
        if now_s < self._settled_s:
            ready = {name for name, job in jobs.items() if job.ready}
            jobs |= {name: job for name, job in self.jobs.items() if job.ready and name not in ready}
        self._tell(True)
        self.jobs = jobs

    async def _read_jobs(self) -> dict[str, Job]:
        (names,) = await self._link.call_checked(("ZRANGE", keys.NODES, 0, -1))
        beats: list[bytes | None] = (await self._link.call_checked(("MGET", *names)))[0] if names else []
        nodes = read_nodes(beat for beat in beats if beat is not None)
        self.releases = sorted({str(node) for node in nodes} - {release()})
        return jobs_of(nodes)

    def _tell(self, reachable: bool, reason: str = "") -> None:
        self.reachable = reachable
        if reachable != self._told_reachable:
            if reachable:
                log.info("the nodes are seen again", redis=self.described)
            else:
                log.warning("the nodes cannot be seen", reason=reason)
        self._told_reachable = reachable


class _Pace:
    """Records per second that the nodes of a job finish while they have enough to do."""

    def __init__(self) -> None:
        self.rate = 0.0
        self._done = 0
        self._since_s = -math.inf
        self._busy = False

    def observe(self, job: Job, backlog: int, now_s: float) -> None:
        """Note the number of finished records."""
        told = [node.figures.get(name) for node in job.nodes for name in ("answered", "failed")]
        done = sum(number for number in told if isinstance(number, int))
        elapsed_s = now_s - self._since_s
        self._busy = self._busy and backlog > 0
        if elapsed_s < _LEAST_OBSERVED_S:
            return
        if self._busy and done > self._done:
            rate = (done - self._done) / elapsed_s
            self.rate = (self.rate + rate) / 2 if self.rate else rate
        self._done, self._since_s, self._busy = done, now_s, backlog > 0
