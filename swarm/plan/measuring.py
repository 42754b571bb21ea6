"""Measurement of a profile: a private Redis, one node with one worker, a frontend, and two loads, one record at a time and many.

CPU time is measured, and not the time on the clock, so that programs beside the measurement change little. A full machine takes
more, for the network in the kernel and for caches that processes share. That comes from the rate of the second load: the costs are
raised until the simulation has the rate that was measured.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import psutil
import redis

from cluster_serving.client import keys
from cluster_serving.client.servers.config.sources import ENVIRON_PREFIX
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.node.chaos.nodes import write_config
from cluster_serving.node.commands.bench_target import http_aim, queue_aim
from cluster_serving.node.commands.client_errors import as_faults
from cluster_serving.node.commands.job_in_redis import Where
from cluster_serving.node.config.loading import Config
from cluster_serving.node.load.machine import machine
from cluster_serving.node.load.measure import measure
from cluster_serving.node.load.messages import HttpTarget, Order, QueueTarget
from cluster_serving.node.load.windows import Window
from cluster_serving.node.tuning.trial_redis import on_trial_redis
from cluster_serving.swarm.plan.part import RECORDS
from cluster_serving.swarm.plan.profile import CALLS, PARTS, Cost, Profile
from cluster_serving.swarm.plan.serving import Crew, Load, play

_JOB = "profile"
_TIMEOUT_S = 60.0
_HOPS = 6  # a record is handed on: caller, Redis, reader, worker, writer, Redis, caller
_BUSY = 64  # records or HTTP requests under way that keep all processes busy
_TRIES = 3  # of raising the costs, since waits do not grow with them
_FEW = 2.0  # least rows of a batch that tell the cost of a call from the cost of a record
_PROBES = 64  # records whose memory in Redis is measured
_PINGS = 100  # calls of each of the clients
_US = 1e6


class Usage(NamedTuple):
    """CPU seconds of each kind of process, and bytes from Redis, since their start.

    Attributes:
        at_s: time of the look, in seconds of the monotonic clock.
    """

    cpu_s: dict[str, float]
    redis_bytes: int
    at_s: float


class Loaded(NamedTuple):
    """Load that was measured.

    Attributes:
        cpu_us: CPU microseconds of a record by kind of process.
        rows: mean rows of a batch.
        redis_bytes: bytes from Redis for a record: it goes to the reader, its result to the caller.
        p50_us: median time to an answer.
        rate: answers a second.
    """

    cpu_us: dict[str, float]
    rows: float
    redis_bytes: float
    p50_us: float
    rate: float


class Stage:
    """Node of the measurement with its Redis and frontend."""

    def __init__(self, config: Config, home: Path, path: Path, url: str | None) -> None:
        self._config = config
        self._home = home
        self._path = path
        self._url = url
        self._own = self._processes()

    def queue_target(self, words: Sequence[str]) -> QueueTarget:
        """Return the queue of the node, and the records for it."""
        with as_faults():
            target = queue_aim(Where(_JOB, str(self._path), None), words, _TIMEOUT_S).target
        assert isinstance(target, QueueTarget)  # noqa: S101 - queue_aim has no other targets
        return target

    def http_target(self, words: Sequence[str]) -> HttpTarget | None:
        """Return the frontend, and the requests for it. None: there is no frontend."""
        if self._url is None:
            return None
        with as_faults():
            target = http_aim(self._url, None, _JOB, words, _TIMEOUT_S).target
        assert isinstance(target, HttpTarget)  # noqa: S101 - http_aim has no other targets
        return target

    def load(self, target: QueueTarget | HttpTarget, connections: int, seconds: float) -> Loaded:
        """Keep requests under way, and return what each of them cost.

        Raises:
            Fault: a record failed.
        """
        order = Order(target, connections, 0.0, "poisson", 0, _TIMEOUT_S, _TIMEOUT_S)
        usages: list[Usage] = []

        def seen(_window: Window) -> None:
            usages.append(self._usage())

        measured = measure(order, seconds, 1, 1, seen)[-1]
        if measured.error is not None or measured.messages:
            reasons = [measured.error.error] if measured.error else list(measured.messages.values())
            raise Fault(f"the load of the measurement failed: {reasons[0]}")
        if measured.is_interrupted:
            raise KeyboardInterrupt
        windows = measured.windows[1:]
        took_s = np.concatenate([window.took_s for window in windows])
        measured_s = sum(window.seconds for window in windows)
        first, last = usages[0], usages[-1]
        # A busy machine may hold a look up, and the load goes on meanwhile.
        share = measured_s / (last.at_s - first.at_s)
        cpu_s = {kind: share * (after_s - first.cpu_s[kind]) for kind, after_s in last.cpu_s.items()}
        cpu_s["caller"] = sum(window.busy * window.seconds for window in windows)
        rows = [sample.rows for window in windows for sample in window.samples if sample.rows]
        return Loaded(
            {kind: _US * cpu / took_s.size for kind, cpu in cpu_s.items()},
            float(np.mean(rows)) if rows else 1.0,
            share * (last.redis_bytes - first.redis_bytes) / took_s.size,
            _US * float(np.median(took_s)),
            took_s.size / measured_s,
        )

    def batch(self) -> int:
        """Return the most rows of a batch."""
        with self._config.redis_settings().client() as client:
            (key,) = client.scan_iter(keys.node_key(_JOB, "*"))
            beat: Any = client.get(key)
        return Heartbeat.decode(bytes(beat)).batch_size

    def memory_bytes(self, record: Sequence[bytes]) -> int:
        """Return the memory of Redis that a waiting record takes."""
        probe = f"{_JOB}.probe"
        with self._config.redis_settings().client() as client:
            for number in range(_PROBES):
                client.execute_command("XADD", probe, "*", keys.URI, f"{number:032x}", *record)
            used: Any = client.memory_usage(probe, samples=0)
            client.delete(probe)
        return int(used) // _PROBES

    def call_us(self) -> float:
        """Return the CPU time of Redis for the least that a call of a client costs, while many clients call."""
        settings = self._config.redis_settings()
        with ExitStack() as links, settings.client() as client:
            callers = [links.enter_context(closing(Link(settings))) for _ in range(_BUSY)]
            for caller in callers:
                caller.call("PING")
            before: Any = client.info("cpu")
            for _ in range(_PINGS):
                for caller in callers:
                    caller.send(("PING",))
                for caller in callers:
                    caller.read()
            after: Any = client.info("cpu")
        used_s: float = sum(after[name] - before[name] for name in ("used_cpu_user", "used_cpu_sys"))
        return _US * used_s / (_PINGS * len(callers))

    def worker_bytes(self) -> int:
        """Return the memory of the worker."""
        return sum(process.memory_full_info().uss for kind, process in self._own if kind == "worker")

    def _usage(self) -> Usage:
        used: defaultdict[str, float] = defaultdict(float)
        for kind, process in self._own:
            times = process.cpu_times()
            used[kind] += times.user + times.system
        with self._config.redis_settings().client() as client:
            info: Any = client.info()
        used["redis"] += info["used_cpu_user"] + info["used_cpu_sys"]
        return Usage(used, info["total_net_output_bytes"], time.monotonic())

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        """Return the processes of node and frontend, each with its kind."""
        found: list[tuple[str, psutil.Process]] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("CLUSTER_SERVING_HOME") == str(self._home):
                    kind = process.name().partition("-")[0]
                    if kind not in {"reader", "writer", "worker"}:
                        kind = "frontend" if "cluster_serving.frontend" in " ".join(process.cmdline()) else "supervisor"
                    found.append((kind, process))
        return found


def profile(
    config: Config, words: Sequence[str], threads: int, seconds: float, tell: Callable[[str], None]
) -> tuple[Profile, float]:
    """Measure the costs of a model's records on this machine. Return the profile, and the factor by which its costs were raised.

    Args:
        config: configuration of the model.
        words: records as in the command line of `predict`. Empty: records are made up.
        threads: threads of the worker.
        seconds: time of each of the loads.
        tell: called with each step of the measurement, for people.

    Raises:
        Fault: the model cannot be served, or does not take the records.
    """
    tell("one record at a time")
    with _stage(config, threads) as stage:
        target = stage.queue_target(words)
        alone = stage.load(target, 1, seconds)
        tell("full batches")
        batch = stage.batch()
        window = 4 * batch
        together = stage.load(target, window, seconds)
        frontend = None
        requests = stage.http_target(words)
        if requests is not None:
            tell("HTTP")
            one_us, many_us = (stage.load(requests, number, seconds).cpu_us["frontend"] for number in (1, _BUSY))
            frontend = Cost.of_call(min(one_us, many_us), 0.0, one_us)
        record = target.records[0]
        memory_bytes, worker_bytes = stage.memory_bytes(record), stage.worker_bytes()
        calls_us = CALLS * stage.call_us()
    rows = max(_FEW, together.rows)
    fitted = (kind for kind in PARTS if kind != "redis")
    costs = {kind: Cost.fitted(alone.cpu_us[kind], together.cpu_us[kind], rows) for kind in fitted}
    redis_us = max(0.0, together.cpu_us["redis"] - calls_us / rows)
    costs["redis"] = Cost.of_call(redis_us + calls_us, calls_us, alone.cpu_us["redis"])
    payload_bytes = sum(map(len, record))
    found = Profile(
        model=config.model_path,
        machine=machine(),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        batch=batch,
        threads=threads,
        payload_bytes=payload_bytes,
        result_bytes=max(0, round(together.redis_bytes - payload_bytes)),
        memory_bytes=memory_bytes,
        worker_bytes=worker_bytes,
        **costs,
        frontend=frontend,
        handing_us=round(max(0.0, alone.p50_us - sum(alone.cpu_us[kind] for kind in costs)) / _HOPS, 1),
    )
    return raised(found, window, together.rate)


def raised(found: Profile, window: int, rate: float) -> tuple[Profile, float]:
    """Return a profile with costs by which the simulation has a measured rate, and the factor. Costs are never lowered.

    Args:
        found: profile with the CPU time of processes as its costs.
        window: records that were under way.
        rate: answers a second that were measured, with all processes on this machine.
    """
    crew = Crew(1, 1, len(os.sched_getaffinity(0)), callers=1, caller=found.caller, one_machine=True)
    raised_by = 1.0
    for _ in range(_TRIES):
        crew = replace(crew, caller=found.caller)
        factor = play(found, crew, Load(RECORDS, window=window)).rate / rate
        if factor <= 1:
            break
        costs = {kind: cost.times(factor) for kind in (*PARTS, "frontend") if (cost := getattr(found, kind))}
        found = msgspec.structs.replace(found, **costs)
        raised_by *= factor
    return found, raised_by


@contextmanager
def _stage(config: Config, threads: int) -> Generator[Stage]:
    """Start the node with one worker, and a frontend if its packages are installed, for a block."""
    with (
        tempfile.TemporaryDirectory(prefix="cluster-serving-profile-") as name,
        on_trial_redis(config, port=_free_port()) as private,
    ):
        home, path = Path(name) / "home", Path(name) / "config.yaml"
        own = private.model_copy(
            update={
                "shadow": 0.0,
                "job_name": _JOB,
                "model_parallelism": 1,
                "thread_per_model": threads,
                "tuning": "off",
            }
        )
        write_config(own, path)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(ENVIRON_PREFIX)}
        environment = kept | {"CLUSTER_SERVING_HOME": str(home)}
        with_http, port = find_spec("sanic") is not None, _free_port()
        try:
            _run(environment, "start", "-c", str(path), *(["--http", f"--port={port}"] if with_http else []))
            yield Stage(own, home, path, f"http://127.0.0.1:{port}" if with_http else None)
        finally:
            with suppress(Fault, redis.RedisError):
                _run(environment, "stop", _JOB)


def _run(environment: dict[str, str], command: str, *arguments: str) -> None:
    program, pipe = [sys.executable, "-P", "-m", "cluster_serving.node.cli"], subprocess.PIPE
    # Ctrl-C on a terminal does not reach a session of its own.
    with subprocess.Popen(
        [*program, command, *arguments],
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, errors = process.communicate()
        except KeyboardInterrupt:
            if command == "start":
                process.send_signal(signal.SIGINT)  # `start` ends the node that it has begun to start
            process.communicate()
            raise
    if process.returncode:
        raise Fault(f"the model cannot be served: {errors.strip() or output.strip()}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
