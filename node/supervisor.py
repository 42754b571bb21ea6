"""The supervisor: starts a lane, watches it, tells Redis how it is, and drains it when it is asked to stop.

It loads no framework. A signal handler only queues; the loop acts.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

import msgspec
import redis
import structlog

from cluster_serving.client import keys
from cluster_serving.node.bell import Bell
from cluster_serving.node.config import Config
from cluster_serving.node.exit_codes import ExitCode
from cluster_serving.node.jobs import Job
from cluster_serving.node.lane import Lane
from cluster_serving.node.metrics import totals
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import Detected, detect
from cluster_serving.node.processing.topn import parse_filter

log = structlog.get_logger(__name__)

Report = Callable[[str, str], None]
"""Told how the start goes: an event (`progress`, `ready` or `failed`) and a sentence."""

HEARTBEAT_S = 2.0
_HEARTBEAT_LIFE_MS = 6000
_TURN_S = 0.5
_DRAINING_TURN_S = 0.02


class Phase(StrEnum):
    """Where a node stands."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"  # the reader finishes what it has read
    STOPPING = "stopping"  # the ring is empty; everybody leaves


class Supervisor:
    """One node."""

    def __init__(self, config: Config, node: str, model: Detected, report: Report) -> None:
        self._config = config
        self._node = node
        self._model = model
        self._name = model.definition.name
        self._report = report
        workers, threads = config.resolved_parallelism(model.backend, len(os.sched_getaffinity(0)))
        self._lane = Lane(config, node, model, workers, threads)
        self._workers, self._threads = workers, threads
        self._signals: deque[int] = deque()
        self._bell = Bell()
        self._redis = config.redis_settings(timeout_s=1.0).client()
        self._phase = Phase.STARTING
        self._exit = ExitCode.OK
        self._started_ms = round(time.time() * 1000)
        self._beat_due_s = 0.0
        self._deadline_s = float("inf")

    def on_signal(self, number: int, _frame: object = None) -> None:
        """Queue a signal for the loop."""
        self._signals.append(number)
        self._bell.ring()

    def run(self) -> ExitCode:
        """Serve until a signal, or until the start fails."""
        self._report("progress", f"loading {self._name} into {_counted(self._workers, 'worker')}")
        if self._config.model_encrypted and not self._config.model_secret:
            self._report("progress", "waiting for the model's secret and salt in the Redis hash model_secured")
        self._lane.start_workers()
        while not self._lane.ended:
            self._wait()
            while self._signals:
                self._act_on(self._signals.popleft())
            self._bury_dead_children()
            self._lane.revive()
            self._advance()
            self._publish_heartbeat()
        self._retire()
        return self._exit

    def _wait(self) -> None:
        """Until a signal, a word or the death of a child, or the next turn."""
        children = list(self._lane.children())
        speaking = {child.fileno(): child for child in children if child.booting}
        poll = select.poll()
        for descriptor in (self._bell.fileno(), *speaking, *(child.death_fd for child in children)):
            poll.register(descriptor, select.POLLIN)
        turn_s = _TURN_S if self._phase in (Phase.STARTING, Phase.READY) else _DRAINING_TURN_S
        ready = {descriptor for descriptor, _ in poll.poll(turn_s * 1000)}
        if self._bell.fileno() in ready:
            self._bell.hear()
        for descriptor in speaking.keys() & ready:
            self._lane.hear(speaking[descriptor])

    def _act_on(self, number: int) -> None:
        if self._phase in (Phase.DRAINING, Phase.STOPPING):
            log.warning("stopping at once", signal=signal.Signals(number).name)
            self._exit = ExitCode.FAILED
            self._lane.kill()
            return
        log.info("draining", signal=signal.Signals(number).name, within_s=self._config.drain_timeout_s)
        was_starting = self._phase is Phase.STARTING
        self._enter(Phase.DRAINING)
        self._deadline_s = time.monotonic() + self._config.drain_timeout_s
        if was_starting:
            self._lane.kill()
        else:
            self._lane.stop_reading()

    def _bury_dead_children(self) -> None:
        for child in list(self._lane.children()):
            reason = child.reap()
            if reason is None:
                continue
            self._lane.bury(child, reason)
            if self._phase is Phase.STARTING:
                sentence, code = child.failure or (
                    f"the {child.name} ended while it started: {reason}",
                    ExitCode.FAILED,
                )
                self._fail(sentence, ExitCode(code))

    def _fail(self, sentence: str, code: ExitCode) -> None:
        """A child that cannot boot stops the node: nothing would be better the second time."""
        self._exit = code
        self._report("failed", sentence)
        self._enter(Phase.STOPPING)
        self._lane.kill()

    def _advance(self) -> None:
        """Move on when what this phase waits for has come."""
        if self._phase is Phase.STARTING and self._lane.serving:
            self._enter(Phase.READY)
            log.info(
                "serving", job=self._config.job_name, model=self._name, engine=self._lane.engine, workers=self._workers
            )
            self._report("ready", self._describe())
        elif self._phase is Phase.DRAINING and self._lane.drained:
            self._enter(Phase.STOPPING)
            self._lane.dismiss()
        if self._phase in (Phase.DRAINING, Phase.STOPPING) and time.monotonic() > self._deadline_s:
            # What was read and not answered stays pending in Redis, and is taken again by the next start of this node.
            log.warning("the drain timeout is over; unanswered records stay in the stream")
            self._deadline_s = float("inf")
            self._lane.kill()

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._beat_due_s = 0.0

    def _describe(self) -> str:
        takes = ", ".join(spec.describe() for spec in self._lane.inputs)
        gives = ", ".join(spec.describe() for spec in self._lane.outputs)
        many = f"{_counted(self._workers, 'worker')} x {_counted(self._threads, 'thread')}"
        runtime = (
            self._model.backend if self._lane.engine == "native" else f"{self._model.backend}, on {self._lane.engine}"
        )
        return f"{self._name} ({runtime}): {takes} -> {gives}; {many}, batch {self._lane.batch}"

    def _publish_heartbeat(self) -> None:
        if time.monotonic() < self._beat_due_s:
            return
        self._beat_due_s = time.monotonic() + HEARTBEAT_S
        job = self._config.job_name
        beat = {
            "state": self._phase,
            "pid": os.getpid(),
            "started_ms": self._started_ms,
            "model": self._model.definition_path,
            "backend": self._model.backend,
            "engine": self._lane.engine,
            "inputs": self._lane.inputs,
            "outputs": self._lane.outputs,
            "workers_alive": self._lane.workers_ready,
            "workers": self._workers,
            "batch_size": self._lane.batch,
            "restarts": self._lane.restarts,
            **totals(self._lane.ring.counters),
        }
        try:
            pipe = self._redis.pipeline(transaction=False)
            pipe.set(keys.node_key(job, self._node), msgspec.json.encode(beat), px=_HEARTBEAT_LIFE_MS)
            pipe.hset(keys.limits_key(job), "maxQueueLength", str(self._config.max_queue_length))
            pipe.execute()
        except (redis.RedisError, OSError) as error:
            log.warning("no heartbeat: Redis cannot be reached", reason=str(error))

    def _retire(self) -> None:
        try:
            self._redis.delete(keys.node_key(self._config.job_name, self._node))
        except (redis.RedisError, OSError):
            log.debug("the heartbeat could not be withdrawn; it expires by itself")
        self._lane.close()
        self._bell.close()
        log.info("stopped", answered=totals(self._lane.ring.counters)["answered"])


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def serve(config: Config, job: Job, report: Report) -> int:
    """Run the node of a job until SIGTERM or SIGINT.

    Args:
        config: a complete one.
        job: its directory on this machine; the caller holds its lock.
        report: told how the start goes.

    Returns:
        The exit code of the process.
    """
    try:
        parse_filter(config.post_processing)
        model = detect(config.model_path, config.model_type, config.beside_model)
    except (ModelError, ValueError) as error:
        report("failed", str(error))
        return ExitCode.MODEL if isinstance(error, ModelError) else ExitCode.CONFIG
    supervisor = Supervisor(config, job.node_id(), model, report)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, supervisor.on_signal)
    return supervisor.run()
