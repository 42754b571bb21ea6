"""Examination of a job, or of a machine without one: every fact is gathered once, then all checks judge."""

import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import redis

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.checks import Case, Checks, Examiner, Finding, Verdict
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.config.loading import Config
from cluster_serving.node.doctor.config import CONFIG
from cluster_serving.node.doctor.job import JOB
from cluster_serving.node.doctor.job_facts import (
    JobFacts,
    demand_of,
    is_untuned,
    model_title,
    read_config,
    read_job,
    read_model,
)
from cluster_serving.node.doctor.machine import MACHINE
from cluster_serving.node.doctor.machine_facts import Demand, read_machine
from cluster_serving.node.doctor.model import MODEL
from cluster_serving.node.doctor.processes import PROCESSES, node_processes
from cluster_serving.node.doctor.redis import REDIS
from cluster_serving.node.doctor.redis_facts import read_redis
from cluster_serving.node.doctor.report import Report
from cluster_serving.node.job import redis_server
from cluster_serving.node.job.directory import Job, state_home
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_program import find_server
from cluster_serving.node.topology.budget import read_allowance, read_budget

REACH = Checks["Reach"]("Redis")

_FIRST_ANSWER_S = 1.0


class Reach(NamedTuple):
    """Way to a Redis: its `error`, and the `program` that a start would run where none listens. Both may be empty."""

    where: str
    error: str = ""
    program: str = ""


@REACH("CS-REDIS-AWAY")
def away(facts: Reach) -> Verdict:
    """Judge whether Redis can be used, or started."""
    if facts.error:
        return Verdict(
            "fail",
            f"{facts.where}: {facts.error}",
            "start that Redis, or mend redisUrl, redisUsername and redisPassword",
            "cluster-serving config",
        )
    return Verdict("ok", f"none listens, and start runs {facts.program}" if facts.program else "the server answers")


def examine(
    job: Job | None, environ: Mapping[str, str] = os.environ, stack_files: tuple[Path, ...] = (), root: Path = Path("/")
) -> Report:
    """Examine a job of this machine, the machine, and the parts beside the node. Nothing is changed.

    Args:
        job: job to examine. A job that was never started has the configuration in the current directory. None: that
            configuration is wrong, and does not tell its job.
        environ: environment variables.
        stack_files: files of a stack. Empty: the stack that runs on this Swarm, if any.
        root: root of the file system with `proc` and `sys`.
    """
    record = job.read() if job else None
    loaded = read_config(job, record, environ)
    config = loaded.loaded.config if loaded.loaded else None
    has_config = loaded.path is not None or record is not None
    findings: list[Finding] = []
    headlines: dict[str, str] = {}
    model = read_model(config, root) if config is not None and has_config else None
    nodes: JobFacts | None = None
    if job is None or config is None:
        of_redis = [*REACH.skip("Redis", "the configuration cannot be read"), *REDIS.skip("Redis", "not looked at")]
    else:
        of_redis, nodes, headlines[REDIS.group] = _of_redis(job, config, root)
    budget = read_budget(read_allowance(os.sched_getaffinity(0), root), root)
    demand: Demand | None = None
    if job is not None and config is not None and model is not None:
        demand = demand_of(config, model, budget, nodes.own if nodes else None)
        if model.detected:
            untuned = is_untuned(job, config, model.detected, budget, nodes.own if nodes else None)
            loaded = loaded._replace(backend=model.detected.backend, untuned=untuned)
    machine = read_machine(demand, state_home(environ), root)
    findings += MACHINE.run(machine, "this machine")
    headlines[MACHINE.group] = machine.budget.described()
    findings += PROCESSES.run(node_processes(), "this machine")
    findings += of_redis
    if model is None:
        findings += MODEL.skip("model", "no configuration names a model")
    else:
        headlines[MODEL.group] = title = model_title(model)
        findings += MODEL.run(model, title)
    findings += CONFIG.run(loaded, str(loaded.path or "config"))
    headlines[CONFIG.group] = str(loaded.path or "no config.yaml here")
    if job is None:
        findings += JOB.skip("job", "the configuration does not tell the job")
    elif record is None:
        findings += JOB.skip(f"job {job.name}", f"no job {job.name} was started on this machine")
    else:
        headlines[JOB.group] = job.name
        findings += JOB.run(nodes, f"job {job.name}") if nodes else JOB.skip(f"job {job.name}", "Redis does not tell")
    case = Case(loaded.path, environ, stack_files, redis=config.redis_settings() if config is not None else None)
    findings += [finding for examiner in _examiners() for finding in examiner.examine(case)]
    return Report(findings, headlines)


def codes() -> tuple[str, ...]:
    """Return the codes of all checks, in the order of the report."""
    own = (MACHINE, PROCESSES, REACH, REDIS, MODEL, CONFIG, JOB)
    return (*(code for group in own for code in group.codes), *(code for each in _examiners() for code in each.codes))


def _of_redis(job: Job, config: Config, root: Path) -> tuple[list[Finding], JobFacts | None, str]:
    """Return the findings about Redis, the facts that Redis has about the job, and the headline."""
    settings = config.redis_settings(min(_FIRST_ANSWER_S, config.redis_timeout / 1000))
    subject = f"Redis at {settings.describe()}"
    try:
        facts = read_redis(settings, root)
        nodes = read_job(job, job.read(), settings)
    except (redis.RedisError, OSError) as error:
        reach = _not_reached(job, settings, str(error))
        reason = "Redis does not answer" if reach.error else "no Redis runs"
        idle = None if reach.error else JobFacts(job.name, job.running(), None, (), ())
        headline = f"none at {settings.describe()}" if reach.program else settings.describe()
        return [*REACH.run(reach, subject), *REDIS.skip(subject, reason)], idle, headline
    findings = [*REACH.run(Reach(subject), subject), *REDIS.run(facts, subject)]
    return findings, nodes, f"{facts.server} at {settings.describe()}, {facts.round_trip_s * 1e3:.2f} ms"


def _not_reached(job: Job, settings: RedisSettings, error: str) -> Reach:
    """Return the way to a Redis that does not answer. A start runs a Redis where none listens on this machine."""
    where = f"Redis at {settings.describe()}"
    silent = settings.is_local_default and redis_server.listener(settings.port) is redis_server.Listener.NOBODY
    if not silent or job.running():
        return Reach(where, error)
    try:
        return Reach(where, program=find_server(os.environ, job.redis_directory).described())
    except RedisUnavailable as fault:
        return Reach(where, str(fault))


def _examiners() -> list[Examiner]:
    """Return the examiners of the installed parts."""
    found: list[Examiner] = []
    for entry in sorted(entry_points(group="cluster_serving.checks"), key=lambda entry: entry.name):
        with suppress(Fault, ModuleNotFoundError):  # the packages of the part are not installed
            found.append(entry.load())
    return found
