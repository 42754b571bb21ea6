"""Heartbeat: the state of a node, written to Redis every two seconds, with a check of the memory of Redis."""

import os
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import redis
import structlog

from cluster_serving import __version__
from cluster_serving.client import keys
from cluster_serving.client.protocol.resp import cannot_serve
from cluster_serving.client.wire.compression import CODECS
from cluster_serving.client.wire.heartbeat import Heartbeat, release
from cluster_serving.node.config.loading import Config
from cluster_serving.node.job.redis_kind import counted_memory, eviction
from cluster_serving.node.job.releases import other_releases
from cluster_serving.node.reader.leases import leave
from cluster_serving.node.ring.metrics import Figures
from cluster_serving.node.supervisor.generation import Generation
from cluster_serving.node.supervisor.inheritance import inherit
from cluster_serving.node.supervisor.load_line import LoadLine
from cluster_serving.node.supervisor.recent import Recent
from cluster_serving.node.supervisor.tensorboard import Scalars
from cluster_serving.node.topology.machine import sockets

log = structlog.get_logger(__name__)

HEARTBEAT, LISTING = (Path(__file__).with_name(f"{name}.lua").read_text() for name in ("heartbeat", "listing"))
INTERVAL_S = 2.0
_LIFE_MS = 6000
_TIMEOUT_S = 1.0
_MB = 1e6
_REFUSALS = (redis.ResponseError, redis.BusyLoadingError, redis.AuthenticationError)


class HeartbeatPublisher:
    """Publisher of the heartbeat of one node, with a connection to Redis."""

    def __init__(self, config: Config, node: str) -> None:
        self._node = node
        self._started_ms = round(time.time() * 1000)
        self._due_s = 0.0
        self._told = ("", 0, 0)
        self._told_full = False
        self._told_eviction = ""
        self._may_look = self._is_listed = True
        self._config = config
        self._recent = Recent()
        self._sockets = sockets(Path("/"))
        self._load_line = LoadLine(config.log_interval_s, Scalars(config.tensorboard_dir, f"{config.job_name}-{node}"))
        self._redis = config.redis_settings(timeout_s=_TIMEOUT_S).client()

    def inherit(self, consumers: Sequence[str]) -> None:
        """Claim the entries of a killed run of this node for lanes with the given consumer names. Called at the start."""
        try:
            count = inherit(self._redis, self._config.job_name, self._node, consumers)
        except (redis.RedisError, OSError) as error:
            log.debug("cannot inherit pending entries; the entries are claimed after the lease", reason=str(error))
        else:
            if count:
                log.info("inherited from lanes of an earlier run", records=count)

    def tell_releases(self) -> None:
        """Log the nodes of the job that are of another release. Called at the start."""
        with suppress(redis.RedisError, OSError):
            for node in other_releases(self._redis, self._config.job_name):
                told = {"node": node.node, "version": str(node), "own": release()}
                if node.is_understood:
                    log.info("a node of the job is of another version", **told)
                else:
                    log.warning("a node of the job is of a version that does not understand this one", **told)

    def adopt(self, config: Config) -> None:
        """Use a new configuration from now on. The next heartbeat is due at once, because it has the new model."""
        self._redis.close()
        self._config = config
        self._load_line.interval_s = config.log_interval_s
        self._load_line.scalars.follow(config.tensorboard_dir)
        self._due_s = 0.0
        self._redis = config.redis_settings(timeout_s=_TIMEOUT_S).client()

    def is_due(self, state: str, lanes: Generation) -> bool:
        """Return whether the interval is over, or the state or the number of workers has changed since the last heartbeat."""
        return self._told != (state, lanes.workers_ready, lanes.workers) or time.monotonic() >= self._due_s

    def publish(self, state: str, lanes: Generation, figures: Figures) -> None:
        """Publish the state of the node, the serving lanes, and the counts and measurements since the start."""
        self._due_s = time.monotonic() + INTERVAL_S
        self._told = (state, lanes.workers_ready, lanes.workers)
        served = lanes.served_model
        beat = Heartbeat(
            job=self._config.job_name,
            node=self._node,
            version=__version__,
            wire=keys.WIRE,
            state=state,
            pid=os.getpid(),
            started_ms=self._started_ms,
            model=served.model.definition_path,
            model_hash=served.model_hash,
            backend=served.model.backend,
            engine=served.runtime.engine,
            precision=served.runtime.precision,
            candidates=served.candidates,
            inputs=served.inputs,
            outputs=served.outputs,
            raw=served.raw,
            already_batched=(batching := lanes.batching).mode == "none",
            batching=batching.described(),
            workers_alive=lanes.workers_ready,
            workers=lanes.workers,
            threads=lanes.arrangement.threads,
            budget=lanes.arrangement.budget.described(),
            threads_computing=served.threads_computing,
            batch_size=lanes.arrangement.choice.batch,
            host=platform.node(),
            sockets=self._sockets,
            answers_later=True,
            codecs=CODECS,
            shadow=lanes.shadow,
            load=self._recent.add(lanes.sample(figures, self._redis_processor_s())),
            figures=figures.described(),
        )
        try:
            try:
                backlog = self._write(beat)
            except _REFUSALS:
                self._redis.connection_pool.disconnect()  # a new connection may reach a writable master
                backlog = self._write(beat)
            self._load_line.tell(beat, backlog)
        except _REFUSALS as error:
            log.warning("no heartbeat: Redis refuses it", reason=str(error))
        except (redis.RedisError, OSError) as error:
            log.warning("no heartbeat: Redis cannot be reached", reason=str(error))

    def withdraw(self, consumers: Sequence[str]) -> None:
        """Delete the heartbeat, and remove the node's consumers without pending entries from the consumer group."""
        job = self._config.job_name
        self._load_line.scalars.close()
        try:
            self._redis.delete(keys.node_key(job, self._node), *([keys.full_key(job)] if self._told_full else []))
            leave(self._redis, job, consumers)
            self._redis.zrem(keys.NODES, keys.node_key(job, self._node))
        except (redis.RedisError, OSError) as error:
            log.debug("the heartbeat could not be withdrawn; it expires by itself", reason=str(error))
        self._redis.close()

    def _write(self, beat: Heartbeat) -> int:
        """Write the heartbeat, add its key to the list of nodes, and close or open admission. Return the backlog of the job."""
        full, job = self._full(), self._config.job_name
        me = keys.node_key(job, self._node)
        names = (me, keys.limits_key(job), keys.full_key(job), job, keys.dead_key(job))
        told = (
            msgspec.structs.replace(beat, full=full).encode()[:-1],
            _LIFE_MS,
            self._config.max_queue_length,
            full,
            keys.GROUP,
        )
        backlog: Any = self._redis.eval(HEARTBEAT, len(names), *names, *told)
        try:
            self._redis.eval(LISTING, 1, keys.NODES, me)  # by itself: a user may lack the right to write the list
        except redis.ResponseError as error:
            if self._is_listed:
                log.warning("frontends cannot find this node", reason=str(error))
            self._is_listed = False
        else:
            self._is_listed = True
        if bool(full) != self._told_full:
            log.warning("nothing is admitted", reason=full) if full else log.info("records are admitted again")
        self._told_full = bool(full)
        return int(backlog)

    def _redis_processor_s(self) -> float:
        """Return the seconds of processor time of Redis' main thread, or of all threads before Redis 7. 0: not known."""
        with suppress(redis.RedisError, OSError):
            cpu: dict[str, Any] = self._redis.info("cpu")
            for thread in ("_main_thread", ""):
                if f"used_cpu_user{thread}" in cpu:
                    return float(cpu[f"used_cpu_user{thread}"]) + float(cpu[f"used_cpu_sys{thread}"])
        return 0.0

    def _full(self) -> str:
        """Return the reason for admitting no more records: Redis has little memory left, even without dead letters.

        The reason is empty while Redis has enough memory, or if the node may not ask.

        Raises:
            redis.RedisError: Redis cannot be reached, or cannot serve now.
        """
        while self._may_look:
            try:
                memory: dict[str, Any] = self._redis.info("memory")
            except redis.ResponseError as error:
                if cannot_serve(error):
                    raise
                self._may_look = False
                break
            if (lost := eviction(memory)) != self._told_eviction:
                self._told_eviction = lost
                if lost:
                    log.warning("Redis does not keep all that it accepts", reason=lost)
            used, most, share = (
                counted_memory(memory),
                int(memory.get("maxmemory", 0)),
                self._config.max_redis_memory_use,
            )
            if not most or used <= share * most:
                break
            if not self._shed_dead_letters(used - share * most):
                return f"Redis uses {used / _MB:.0f} of its {most / _MB:.0f} MB (maxRedisMemoryUse {share:g})"
        return ""

    def _shed_dead_letters(self, excess_bytes: float) -> bool:
        """Delete the older half of the dead letters, if all letters together take the excess, and return whether it was done."""
        key = keys.dead_key(self._config.job_name)
        try:
            size: Any = self._redis.memory_usage(key, samples=0)
            if (size or 0) < excess_bytes:
                return False
            letters: Any = self._redis.xlen(key)
            deleted: Any = self._redis.xtrim(key, maxlen=letters // 2, approximate=False)
        except redis.ResponseError as error:
            log.debug("dead letters cannot be deleted", reason=str(error))
            return False
        log.warning(
            "the oldest dead letters are deleted: Redis is short of memory", deleted=deleted, left=letters - deleted
        )
        return True
