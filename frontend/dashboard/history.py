"""The last hour of a job, a point every ten seconds, in a stream in Redis.

Every process of every frontend reads the same heartbeats and offers a point. The first offer of ten seconds is kept, so that each
process shows the same hour, also right after its start.
"""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Script
from cluster_serving.frontend.dashboard.point import point_of
from cluster_serving.frontend.models.models import Models, Served

log = structlog.get_logger(__name__)

INTERVAL_S = 10
_HOUR_S = 3600
_EARLY_MS = 1000  # that a process may be before its time
KEEP_POINT = Script(Path(__file__).with_name("keep_point.lua").read_text())


class Recorder:
    """Recorder of the points of all jobs.

    Args:
        models: models whose jobs are recorded.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._told_refusal = False

    async def run(self) -> None:
        """Record a point of each job every ten seconds, for ever."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.record()

    async def record(self) -> None:
        """Record a point of each job, unless another process has done so in the last seconds."""
        for served in {id(each.job): each for each in self._models.all()}.values():
            point = point_of(served.job.nodes)
            if point is None:
                continue
            told = (msgspec.json.encode(point), INTERVAL_S * 1000 - _EARLY_MS, _HOUR_S // INTERVAL_S, _HOUR_S * 1000)
            try:
                await served.link.run(KEEP_POINT, [keys.history_key(served.job.name)], told)
            except ConnectionLost:  # the registry has told
                continue
            except RedisRefused as error:
                if not self._told_refusal:
                    log.warning("the dashboard has no history: Redis refuses it", reason=str(error))
                self._told_refusal = True


async def points_since(served: Served, since_ms: int) -> list[dict[str, Any]]:
    """Return the points of a job after a time, the oldest first: the attributes of `Point`, and `at_ms`, Unix time in ms.

    Raises:
        ConnectionLost: Redis cannot be reached.
    """
    try:
        (entries,) = await served.link.call_checked(
            ("XREVRANGE", keys.history_key(served.job.name), "+", f"({since_ms}-0")
        )
    except RedisRefused:  # `Recorder` has told
        return []
    found: list[dict[str, Any]] = []
    for entry, fields in reversed(entries):
        with suppress(msgspec.DecodeError):
            found.append(
                {"at_ms": int(entry.partition(b"-")[0]), **msgspec.json.decode(fields[1], type=dict[str, Any])}
            )
    return found


async def decisions(served: Served) -> list[dict[str, Any]]:
    """Return the autoscaler's changes of the number of nodes in the last hour, the oldest first.

    Each has its `words`, and `at_ms`, Unix time in ms.

    Raises:
        ConnectionLost: Redis cannot be reached.
    """
    since_ms = round(1000 * (time.time() - _HOUR_S))
    try:
        (entries,) = await served.link.call_checked(
            ("XREVRANGE", keys.decisions_key(served.job.name), "+", f"{since_ms}-0")
        )
    except RedisRefused:  # of a user that may read the history alone
        return []
    return [
        {"at_ms": int(entry.partition(b"-")[0]), "words": fields[1].decode(errors="replace")}
        for entry, fields in reversed(entries)
    ]
