"""Test stand for candidates: real lanes, with a separate job for each shape.

open(shape) ──► lanes: reader, ring, workers, writer ◄── supervised by this process     load (a process) ──► records, answers
measure(candidate): sets the rings' limit of rows, and orders the load to keep the workers busy
"""

import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil
import redis

from cluster_serving.client import keys
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault, ModelFault
from cluster_serving.node.config.arrangement import arrange
from cluster_serving.node.config.choice import Choice, Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Measured, Objective
from cluster_serving.node.engines.batching import Batching
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import TriedRuntime
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.supervisor.generation import Generation, take_turn
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.cgroups import free_bytes
from cluster_serving.node.tuning.candidates import Candidate
from cluster_serving.node.tuning.errors import Refused
from cluster_serving.node.tuning.inputs import records
from cluster_serving.node.tuning.traffic import Begin, Order
from cluster_serving.node.tuning.traffic_process import LoadProcess
from cluster_serving.node.tuning.trial_redis import reached

_NAME = "tuner"  # name of the node, and of the client
_TURN_S = 0.5
_START_S = 600.0
_LOOK_S = 5.0
_ROOM = 0.8  # share of the free memory that workers may take
_MOST_WAITING, _WAITING_S, _WAITING_BYTES = 1024, 0.1, 64 << 20
_LEAST_BATCHES = 3  # of each worker, in one measurement
_LONGEST = 8  # times the ordered seconds: longest measurement, for slow batches
_SLOWEST_ANSWER_S = 10.0  # in addition to runTimeout


@dataclass
class ServingTrial:
    """Lanes with a separate job, with the rate of the last measurement."""

    lanes: Generation
    rate: float = 0.0
    restarts: int = 0


class Stand:
    """Lanes of one or more shapes, and a load.

    Args:
        config: configuration of the lanes. The job names of the lanes begin with its job name.
        model: model that the lanes serve.
        budget: share of the machine that the lanes of a shape may use.
        objective: decides how many records the load keeps under way.
        check: called again and again during start and measurement. An exception from `check` ends the tuning.
        proof_directory: store of the workers' proofs that rows may share a batch. Empty: nothing is kept.
    """

    def __init__(
        self,
        config: Config,
        model: Detected,
        budget: Budget,
        objective: Objective,
        check: Callable[[], None],
        proof_directory: str = "",
    ) -> None:
        self._config = config
        self._model = model
        self._budget = budget
        self._objective = objective
        self._check = check
        self._proof_directory = proof_directory
        self._prefix = f"{config.job_name}.tune-{secrets.token_hex(4)}"
        self._count = 0
        self._bell = Bell()
        self._trials: dict[Shape, ServingTrial] = {}
        self._load: LoadProcess | None = None
        self._worker_bytes = 0
        self._row_bytes = 1
        self.runtime = config.runtime
        """Engine and precision that run the model: first the setting, later the choice of the first worker."""
        self.inputs: tuple[TensorSpec, ...] = ()
        self.batching = Batching("rows")
        """Batching of the model, as the lanes measured last have found."""
        self.runtimes: tuple[TriedRuntime, ...] = ()
        """Runtimes that the first worker tried, if the setting left a choice."""
        self.model_hash = ""
        """Fingerprint of the model. Empty until the first lanes serve, and for a model without a fingerprint."""
        self.busiest_load = 0.0
        """Largest share of a core that the load has used."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._check = lambda: None
        for shape in list(self._trials):
            self.close(shape)
        if self._load is not None:
            self._load.close()
        self._bell.close()

    def open(self, shape: Shape, batch: int) -> None:
        """Start lanes of a shape for batches of at most `batch` records.

        Raises:
            Refused: the shape cannot run here.
            Fault: the first shape cannot run, or Redis is away.
        """
        need, free = shape.workers * self._worker_bytes, psutil.virtual_memory().available
        free = min(free, free if (allowed := free_bytes()) is None else allowed)
        if need > _ROOM * free:
            raise Refused(f"{shape.workers} copies of the model take {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")
        self._count += 1
        config = self._config.model_copy(update={"job_name": f"{self._prefix}-{self._count}", "shadow": 0.0})
        choice = Choice(shape.workers, shape.threads, batch, self.runtime)
        arrangement = arrange(config, self._budget, choice)
        lanes = Generation(config, self._model, _NAME, 0, arrangement, self._proof_directory)
        self._trials[shape] = ServingTrial(lanes)
        with suppress(redis.RedisError, OSError), self._config.redis_settings().client() as client:
            client.hset(keys.limits_key(config.job_name), "maxQueueLength", 0)  # as the heartbeat of a node does
        lanes.start()
        self._await(lanes)
        if not lanes.serving:
            sentence, code = lanes.failure or (f"not ready after {_START_S:g} s", ExitCode.FAILED)
            self.close(shape)
            if self._load is not None:
                raise Refused(sentence)
            raise ModelFault(sentence) if code == ExitCode.MODEL else Fault(sentence)
        if self._load is None:
            self._learn(lanes)

    def measure(self, candidate: Candidate, seconds: float) -> Measured:
        """Keep the lanes of an open shape busy for `seconds`, or longer when batches take long.

        Raises:
            Refused: a record failed, or a process died.
            RedisUnavailable: Redis is away.
        """
        trial = self._trials[candidate.shape]
        trial.lanes.limit_rows(candidate.batch)
        assert self._load is not None  # noqa: S101 - made with the first lane
        workers, batch = candidate.shape.workers, candidate.batch
        running = workers * batch
        if self._objective.latency_ms:
            window = running
        else:
            # For each worker one batch runs and one waits. One more batch is being filled. Fast answers need a queue on top.
            queue = min(_MOST_WAITING, _WAITING_BYTES // self._row_bytes, round(trial.rate * _WAITING_S))
            window = max(2 * running + batch, queue)
        order = Order(
            job=trial.lanes.served_model.config.job_name,
            client=_NAME,
            window=window,
            settle=min(window, 2 * running),
            seconds=seconds,
            least=_LEAST_BATCHES * running,
            most_s=_LONGEST * seconds,
        )
        self._load.order(order)
        self._turn_until(self._load.answered)
        seen = self._load.seen()
        if seen.lost:
            raise RedisUnavailable(seen.error)
        restarts = trial.lanes.figures.counts["restarts"]
        if restarts > trial.restarts or seen.error:
            trial.restarts = restarts
            raise Refused(seen.error or "a process died under load")
        trial.rate = seen.rate
        self.batching = trial.lanes.batching
        self.busiest_load = max(self.busiest_load, seen.busy)
        return Measured(seen.rate, seen.p50_ms, seen.p99_ms)

    def close(self, shape: Shape) -> None:
        """End the lanes of a shape, and delete their job from Redis."""
        lanes = self._trials.pop(shape).lanes
        lanes.kill()
        while not lanes.ended:
            take_turn([lanes], self._bell, _TURN_S)
        lanes.close()
        job = lanes.served_model.config.job_name
        with suppress(redis.RedisError, OSError), self._config.redis_settings().client() as client:
            client.delete(job, keys.limits_key(job), keys.dead_key(job), keys.slow_key(job), keys.reply_key(job, _NAME))

    def _await(self, lanes: Generation) -> None:
        """Wait until the lanes serve, have failed, or have taken too long.

        Raises:
            RedisUnavailable: the lanes wait for a Redis that is away.
        """

        def done() -> bool:
            return lanes.serving or lanes.failure is not None

        give_up_s = time.monotonic() + _START_S
        while not done() and time.monotonic() < give_up_s:
            self._turn_until(done, _LOOK_S)
            reached(self._config)

    def _turn_until(self, done: Callable[[], bool], longest_s: float = math.inf) -> None:
        until_s = time.monotonic() + longest_s
        while not done() and time.monotonic() < until_s:
            take_turn([trial.lanes for trial in self._trials.values()], self._bell, _TURN_S)
            self._check()

    def _learn(self, lanes: Generation) -> None:
        """Start the load, from the facts that the first serving lanes report about the model."""
        served = lanes.served_model
        self.runtime, self.runtimes = served.runtime, served.candidates
        self.inputs, self.model_hash = served.inputs, served.model_hash
        sent = records(self._config, served.inputs, calls=served.batching.mode == "none")
        self._row_bytes = max(sum(map(len, fields)) for fields in sent)
        private_bytes: list[int] = []
        for child in lanes.children():
            with suppress(psutil.Error):
                if child.kind == "worker":
                    private_bytes.append(psutil.Process(child.pid).memory_full_info().uss)
        self._worker_bytes = max(private_bytes, default=0)
        patience_s = self._config.run_timeout_s + _SLOWEST_ANSWER_S
        self._load = LoadProcess(Begin(self._config.redis_settings(), sent, patience_s), self._bell)
