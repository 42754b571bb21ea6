"""Slowest records of the last hour, with the time of each in every stage."""

from contextlib import suppress
from typing import Any

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.wire.slow_record import SlowRecord
from cluster_serving.frontend.models.models import Served


async def slow_records(served: Served) -> list[dict[str, Any]]:
    """Return the slowest records of a job, the slowest first. Records of a release that this one cannot read are left out.

    Raises:
        ConnectionLost: Redis cannot be reached.
    """
    try:
        (told,) = await served.link.call_checked(("ZRANGE", keys.slow_key(served.job.name), 0, -1))
    except RedisRefused:  # the frontend's user may lack the right
        return []
    found: list[dict[str, Any]] = []
    for content in reversed(told):
        with suppress(msgspec.MsgspecError, CodecError):
            found.append(_view(SlowRecord.decode(content)))
    return found


def _view(slow: SlowRecord) -> dict[str, Any]:
    receipt = slow.receipt
    stages = receipt.stages
    return {
        "at_ms": slow.at_ms,
        "took_ms": slow.took_ms,
        "uri": slow.uri,
        "stages": {**stages, "write": round(max(0.0, slow.took_ms - sum(stages.values())), 3)},
        "node": receipt.node,
        "worker": receipt.worker,
        "batch": receipt.batch,
        "deliveries": receipt.deliveries,
        "model": receipt.model,
        "entry": receipt.entry,
    }
