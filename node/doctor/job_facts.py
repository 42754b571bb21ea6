"""Facts about a job: its configuration and model on this machine, and the heartbeats of its nodes in Redis."""

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import redis

from cluster_serving.client import keys
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.config.file_here import file_here
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.config.values import mask_address
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.wire.heartbeat import Heartbeat, Release
from cluster_serving.node.config.arrangement import chosen, most_copies
from cluster_serving.node.config.loading import Config, LoadedConfig, load_config
from cluster_serving.node.config.settings import MAX_WORKERS
from cluster_serving.node.config.tuned import Store, is_open
from cluster_serving.node.doctor.machine_facts import Demand
from cluster_serving.node.engines.precision import has_bfloat16
from cluster_serving.node.job.directory import Job, NodeRecord
from cluster_serving.node.job.releases import heartbeats
from cluster_serving.node.lifecycle.options import recorded_options
from cluster_serving.node.lifecycle.prepare import check_extras
from cluster_serving.node.models.base import ModelError
from cluster_serving.node.models.detect import Detected, detect, missing_package
from cluster_serving.node.models.fingerprint import size
from cluster_serving.node.topology.budget import Budget

_CPUINFO = "proc/cpuinfo"


class ConfigFacts(NamedTuple):
    """Facts about a configuration.

    Attributes:
        path: config file, or None.
        loaded: settings, or None with an `error`.
        error: fault of the configuration. Empty: none.
        unmet: setting that asks for something that this machine lacks. Empty: none.
        mode: permission bits of the file.
        changed_ms: time of the last change of the file in ms. 0: there is no file.
        started_ms: start of the running node in ms. 0: the job does not run.
        job: name of the job for a command line. Empty: the job was never started here.
        backend: backend of the model. Empty: not known.
        untuned: numbers are left to `auto`, and no measurement fits the model and this machine.
    """

    path: Path | None
    loaded: LoadedConfig | None
    error: str = ""
    unmet: str = ""
    mode: int = 0
    changed_ms: int = 0
    started_ms: int = 0
    job: str = ""
    backend: str = ""
    untuned: bool = False


class ModelFacts(NamedTuple):
    """Facts about a model.

    Attributes:
        config: settings of the node.
        detected: the model, or None with an `error` or for a model at a URL.
        error: fault of the model.
        bytes: size of the model's files.
        missing: package of the backend that is not installed, and the command that installs the package.
        has_bfloat16: the CPU has instructions for bfloat16.
    """

    config: Config
    detected: Detected | None
    error: ModelError | None = None
    bytes: int = 0
    missing: tuple[str, str] | None = None
    has_bfloat16: bool = True


class JobFacts(NamedTuple):
    """Facts about the nodes of a job.

    Attributes:
        job: name of the job for a command line.
        running: a supervisor of the job runs on this machine.
        own: heartbeat of the node of this machine. None: there is none.
        beats: heartbeats of all nodes that this release can read.
        others: releases of the nodes of another release.
    """

    job: str
    running: bool
    own: Heartbeat | None
    beats: Sequence[Heartbeat]
    others: Sequence[Release]


def read_config(job: Job | None, record: NodeRecord | None, environ: Mapping[str, str] = os.environ) -> ConfigFacts:
    """Read the configuration of the job's last start, else of `config.yaml` in the current directory."""
    path: Path | None = None
    flags: dict[str, object] = {}
    if record is not None:
        path, flags = Path(record.config_path) if record.config_path else None, recorded_options(record).flags()
    elif here := file_here():
        path = here.absolute()
    facts = ConfigFacts(path, None, job=shlex.quote(record.job) if record else "")
    with suppress(OSError):
        if path is not None:
            status = path.stat()
            facts = facts._replace(mode=status.st_mode & 0o777, changed_ms=status.st_mtime_ns // 1_000_000)
    if job is not None and record is not None and job.running():
        facts = facts._replace(started_ms=record.started_ms)
    try:
        loaded = load_config(path, environ, flags)
    except ConfigError as error:
        return facts._replace(error=str(error))
    try:
        check_extras(loaded.config, environ)
    except Fault as fault:
        facts = facts._replace(unmet=str(fault))
    return facts._replace(loaded=loaded)


def read_model(config: Config, root: Path = Path("/")) -> ModelFacts:
    """Look for the model of a configuration, without loading the model."""
    if config.model_is_remote:
        return ModelFacts(config, None)
    try:
        detected = detect(config.model_path, config.model_type, config.beside_model)
    except ModelError as error:
        return ModelFacts(config, None, error)
    cpuinfo = root / _CPUINFO
    return ModelFacts(
        config,
        detected,
        bytes=size(detected),
        missing=missing_package(detected.backend),
        has_bfloat16=not cpuinfo.exists() or has_bfloat16(cpuinfo),
    )


def read_job(job: Job, record: NodeRecord | None, settings: RedisSettings) -> JobFacts:
    """Read the heartbeats of a job.

    Raises:
        redis.RedisError: Redis does not answer.
    """
    beats: list[Heartbeat] = []
    others: list[Release] = []
    with settings.client() as client:
        for beat in heartbeats(client, job.name):
            with suppress(msgspec.MsgspecError):
                release = Release.read(beat)
                if not release.is_own:
                    others.append(release)
                beats.append(Heartbeat.decode(beat))
        text: Any = None
        with suppress(redis.ResponseError):
            text = client.get(keys.node_key(job.name, record.node)) if record else None
    own: Heartbeat | None = None
    with suppress(msgspec.MsgspecError):
        own = Heartbeat.decode(text) if text else None
    return JobFacts(shlex.quote(job.name), job.running(), own, beats, others)


def is_untuned(job: Job, config: Config, model: Detected, budget: Budget, beat: Heartbeat | None) -> bool:
    """Return whether numbers are left to `auto`, and no measurement fits the model and this machine."""
    if config.tuning == "off" or not is_open(config, model.backend):
        return False
    return Store(job.directory).find(config, model, budget, beat.model_hash if beat else "") is None


def demand_of(config: Config, model: ModelFacts, budget: Budget, beat: Heartbeat | None) -> Demand:
    """Return the workers and threads of the running node, else the numbers that a start would choose."""
    backend = model.detected.backend if model.detected else ""
    room = most_copies(model.detected) if model.detected else MAX_WORKERS
    choice = chosen(config, backend, budget, room)
    workers, threads = choice.workers, choice.threads
    throttled: float | None = None
    if beat is not None and beat.workers:
        workers, threads = beat.workers, beat.threads
        throttled = beat.load.throttled if beat.load else None
    return Demand(workers, threads, model.bytes, backend, config.model_encrypted, beat is not None, throttled)


def model_title(model: ModelFacts) -> str:
    """Return the model for people, without the secrets of a URL."""
    return str(model.detected.definition) if model.detected else mask_address(model.config.model_path) or "no model"
