"""Streams of clients before 0.9: `image_stream` and `tensor_stream`.

    old client --XADD--> image_stream --move.lua--> stream of the job --XREADGROUP--> reader

A moved entry is an entry like any other: it is leased, redelivered, and counted. The decoder knows it by its fields.
"""

import time
from pathlib import Path

import structlog

from cluster_serving.client import keys
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.threads.link import Link

log = structlog.get_logger(__name__)

MOVE = Script(Path(__file__).with_name("move.lua").read_text())

PERIOD_S = 0.02
"""Seconds between two looks, which is what a record of an old client may lose."""

_AT_ONCE = 64
_SOON_S = 0.001
_REFUSED_PERIOD_S = 10.0
_FIELDS = (keys.URI, keys.LEGACY_IMAGE, keys.LEGACY_TENSOR)


class LegacyStreams:
    """Moves the entries of old clients to the stream of a job.

    Args:
        link: connection to Redis.
        job: name of the job. A job that is called like an old stream reads the stream itself.
    """

    def __init__(self, link: Link, job: str) -> None:
        self._link = link
        self._streams = [job, *(stream for stream in keys.LEGACY_STREAMS if stream != job)]
        self._due_s = 0.0

    @property
    def due(self) -> bool:
        """True when it is time to look."""
        return time.monotonic() >= self._due_s

    def move(self) -> None:
        """Move up to 64 entries of each stream.

        A refusal of Redis is logged, and the next look is later: reading from the job's own stream goes on, and makes room.

        Raises:
            ConnectionLost: Redis cannot be reached.
        """
        try:
            moved = self._link.run(MOVE, self._streams, [_AT_ONCE, *_FIELDS])
            pause_s = PERIOD_S if moved < _AT_ONCE else _SOON_S
        except RedisRefused as error:
            log.warning("cannot move records of clients before 0.9", streams=self._streams[1:], reason=str(error))
            pause_s = _REFUSED_PERIOD_S
        self._due_s = time.monotonic() + pause_s
