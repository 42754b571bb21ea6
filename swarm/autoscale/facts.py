"""Facts about a job in Redis: arrivals, backlog, and the work of its nodes."""

from contextlib import suppress
from pathlib import Path

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.resp import Script
from cluster_serving.client.servers.picture import JobPicture
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.swarm.autoscale.pace import NodeWork
from cluster_serving.swarm.autoscale.policy import Facts

_ARRIVALS = Script(Path(__file__).with_name("arrivals.lua").read_text())


class Doubtful(Exception):
    """The facts are missing, or cannot be trusted. The message says why."""


class OldRedis(Fault):
    """Redis does not count arrivals."""

    exit_code = ExitCode.REDIS


def read_facts(link: Link, job: str, replicas: int) -> Facts:
    """Read the facts about a job.

    Args:
        link: connection to the Redis of the job.
        job: name of the job.
        replicas: number of nodes that Swarm is told to run.

    Raises:
        Doubtful: Redis cannot be reached, or no heartbeat can be read.
        OldRedis: Redis is older than version 7.
    """
    try:
        arrived, backlog = link.run(_ARRIVALS, [job], [])
        listed: list[bytes] = link.call("ZRANGE", keys.NODES, 0, -1)
        of_job = [key for key in listed if key.startswith(keys.node_key(job, "").encode())]
        found: list[bytes | None] = link.call("MGET", *of_job) if of_job else []
    except ConnectionLost as error:
        raise Doubtful(str(error)) from error
    except RedisRefused as error:
        raise Doubtful(f"Redis refuses: {error}") from error
    if arrived < 0:
        raise OldRedis("this Redis does not count arrivals: the autoscaler needs Redis 7 or newer, or Valkey")
    beats = [beat for beat in found if beat is not None]
    nodes: list[Heartbeat] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):
            nodes.append(Heartbeat.decode(beat))
    if beats and not nodes:
        raise Doubtful("the nodes are of a release whose heartbeats cannot be read: deploy one release everywhere")
    ready = [node for node in nodes if node.ready]
    return Facts(
        arrived, backlog, max((node.model_hash for node in ready), default=""), list(map(_work, ready)), replicas
    )


def _work(node: Heartbeat) -> NodeWork:
    picture, load = JobPicture.of([node]), node.load
    if picture is None or load is None:
        return NodeWork(node.workers, node.batch_size, 0.0, 0.0, 0.0)
    busy = min(1.0, max(picture.mean_busy, picture.reader, picture.writer))
    return NodeWork(node.workers, node.batch_size, load.rows, load.records_s, busy)
