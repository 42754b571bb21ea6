"""`status`: the state of a job on this machine, and the last heartbeat of its node in Redis."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.node.commands.which_job import job_argument
from cluster_serving.node.lifecycle.jobs_here import not_running, was_started

if TYPE_CHECKING:
    from cluster_serving.node.job.directory import Job, NodeRecord

_FIRST_ANSWER_S = 2.0
NOT_RUNNING = "not running"
UNKNOWN = "unknown"
_SETTLED = ("state", "model", "backend", "engine", "precision", "threads", "budget", "batching", "batch_size")
_NUMBERS = ("answered", "failed", "dead", "redelivered", "restarts", "recycled", "reconnects")
_LOAD = ("rec/s", "p50", "p99", "oldest", "fill", "busy", "err/s", "dead letters")
_ORDER = (
    *(
        "job",
        "state",
        "node",
        "version",
        "pid",
        "uptime",
        "model",
        "backend",
        "engine",
        "precision",
        "budget",
        "workers",
    ),
    *(
        "threads",
        "batching",
        "batch_size",
        *_NUMBERS,
        "backlog",
        "pending",
        *_LOAD,
        "stages",
        "limit",
        "redis",
        "server",
        "log",
        "warning",
        "problem",
    ),
)


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option("--placement", is_flag=True, help="This machine's cores, and which process runs where.")
@click.option("--json", "as_json", is_flag=True, help="JSON: an array with an object for each job.")
@click.pass_context
def status(context: click.Context, name: str | None, placement: bool, as_json: bool) -> None:
    """Show the state of the jobs of this machine.

    Exits with 0 when every running job is ready, with 3 when no job runs, and with 1 otherwise. Without NAME, the command shows
    a line for each running job, and each stopped job with records waiting in its queue. With NAME it shows all of one job.

    rec/s, err/s, fill (of a batch) and busy (workers) are of the last 10 s, p50 and p99 (from enqueueing to the result) of the last
    minute, of all nodes of the job. oldest: age of the oldest waiting record. dead: dead letters.

    Counts begin at the start of the node. dead: failed records that are kept as dead letters. redelivered: records taken again
    after a process or a node had died. restarts: restarts of the node's processes. recycled: workers replaced because of their
    memory.
    """
    from cluster_serving.node.job.directory import Job, all_jobs

    known = [Job.of(name)] if name is not None else all_jobs()
    if placement:
        from cluster_serving.client.servers.process.table import output_width
        from cluster_serving.node.commands.core_map import all_cores, described, drawn, processes

        cores, running = all_cores(), processes(known)
        if as_json:
            click.echo(json.dumps(described(cores, running), indent=2))
        else:
            click.echo(drawn(cores, running, output_width()))
        context.exit(ExitCode.OK if running else ExitCode.NOT_RUNNING)
    found = [describe(job) for job in known]
    reports = [one for one in found if name is not None or one["state"] != NOT_RUNNING or one.get("backlog")]
    if as_json:
        click.echo(json.dumps(reports, indent=2))
    elif name is not None and not was_started(known[0]):
        say(f"{not_running(known[0])}.")
    elif not reports:
        click.echo("No job runs on this machine." if known else "No job was ever started on this machine.")
    else:
        from cluster_serving.client.servers.process.table import facts, output_width
        from cluster_serving.node.commands.load_text import jobs_table

        if name is None:
            jobs_table(reports).show()
        else:
            click.echo("\n".join(facts(rows(reports[0])).lines(output_width())))
    states = {str(report["state"]) for report in reports} - {NOT_RUNNING}
    if not states:
        context.exit(ExitCode.NOT_RUNNING)
    context.exit(ExitCode.OK if states == {"ready"} else ExitCode.FAILED)


def describe(job: "Job") -> dict[str, Any]:
    """Return the known facts about a job on this machine. A value is None when the fact is not known."""
    from cluster_serving.node.job import redis_server
    from cluster_serving.node.job.redis_watch import watched

    record = job.read()
    is_running = job.running()
    process = job.supervisor() if is_running else None
    report: dict[str, Any] = {
        "job": job.name,
        "node": record.node if record else None,
        "state": "starting" if is_running else NOT_RUNNING,
        "pid": process.pid if process else None,
        "redis": record.redis if record else None,
        "log": str(job.log_path) if job.log_path.exists() else None,
    }
    if record is not None:
        report |= _from_redis(record, is_running)
        if record.redis_directory is not None:  # the embedded Redis that the node uses or used last
            directory = Path(record.redis_directory)
            seen = watched(directory)
            pid = redis_server.owned(directory)
            report |= {"redis_pid": pid, "redis_restarts": seen.restarts, "redis_directory": str(directory)}
            if seen.restarts:
                restarted = time.localtime(seen.last_restart_ms / 1000)
                report["redis_restarted"] = time.strftime("%Y-%m-%d %H:%M:%S", restarted)
            if "problem" in report and pid is None:
                why = f"the embedded Redis does not run: {seen.problem}" if seen.problem else "its Redis is shut down"
                report["problem"] = why
    elif is_running:
        report["problem"] = "this machine has no record of the job's start"
    if is_running and "problem" in report:
        report["state"] = UNKNOWN
    return report


def _from_redis(record: "NodeRecord", is_running: bool) -> dict[str, Any]:
    """Return the facts from Redis: the queue, and the heartbeat of a running node."""
    import msgspec
    import redis

    from cluster_serving.client.keys import GROUP, node_key
    from cluster_serving.client.servers.process.exit_codes import Fault
    from cluster_serving.client.wire.heartbeat import Heartbeat, release
    from cluster_serving.node.config.loading import load_config
    from cluster_serving.node.job.redis_kind import eviction
    from cluster_serving.node.job.releases import heartbeats, other_releases
    from cluster_serving.node.lifecycle.options import recorded_options

    path = Path(record.config_path) if record.config_path else None
    try:
        config = load_config(path, os.environ, recorded_options(record).flags()).config
        with config.redis_settings(_FIRST_ANSWER_S).client() as client:
            server: str | None = None  # for a user without permission to ask
            warnings: list[str] = []
            with suppress(redis.ResponseError):
                memory: Any = client.info("memory")
                if lost := eviction(memory):
                    warnings.append(f"Redis does not keep all that it accepts: {lost}")
                info: Any = client.info("server")
                valkey = info.get("valkey_version")
                server = f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version')}"
            try:
                summary: Any = client.xpending(record.job, GROUP)
                pending = summary["pending"]
            except redis.ResponseError:  # no group yet
                pending = 0
            if others := sorted({str(node) for node in other_releases(client, record.job)}):
                warnings.append(f"nodes of the job are of version {', '.join(others)}, this command of {release()}")
            found = {"redis_server": server, "backlog": client.xlen(record.job), "pending": pending}
            if warnings:
                found["warning"] = "; ".join(warnings)
            text: Any = client.get(node_key(record.job, record.node)) if is_running else None
            found |= _load(heartbeats(client, record.job))
        if not text:
            return found
        beat = Heartbeat.decode(text)
        return found | {
            "version": beat.version or None,
            "wire": beat.wire,
            **{name: beat.figures.get(name) for name in (*_SETTLED, "candidates", *_NUMBERS)},
            "workers": f"{beat.workers_alive} of {beat.workers}",
            "uptime_s": max(0, round(time.time() - beat.started_ms / 1000)),
        }
    except Fault as fault:
        return {"problem": str(fault)}
    except (redis.RedisError, OSError) as error:
        return {"problem": f"Redis at {record.redis}: {error}"}
    except msgspec.MsgspecError as error:
        return {"problem": f"the heartbeat in Redis at {record.redis} cannot be read: {error}"}


def _load(beats: Sequence[bytes]) -> dict[str, Any]:
    """Return the load of all nodes of a job, and the part that limits the job. Empty: no node tells its load."""
    import msgspec

    from cluster_serving.client.servers.picture import JobPicture, limit
    from cluster_serving.client.wire.heartbeat import Heartbeat

    nodes: list[Heartbeat] = []
    for beat in beats:
        with suppress(msgspec.MsgspecError):  # of another release
            nodes.append(Heartbeat.decode(beat))
    picture = JobPicture.of(nodes)
    if picture is None:
        return {}
    return {"load": picture._asdict(), "limit": limit(picture)._asdict()}


def rows(report: dict[str, Any]) -> dict[str, Any]:
    """Return name to value of the facts that people are shown about a job, in their order."""
    from cluster_serving.client.servers.picture import JobPicture
    from cluster_serving.client.wire.heartbeat import release
    from cluster_serving.node.commands.load_text import cells, duration

    found = {key: value for key, value in report.items() if value is not None}
    if "uptime_s" in found:
        days, rest = divmod(found["uptime_s"], 86_400)
        clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
        found["uptime"] = f"{days} d {clock}" if days else clock
    if "wire" in found:
        found["version"] = release(found.get("version", ""), found["wire"])
    if "load" in found:
        load = cells(JobPicture(**found["load"]))
        found |= {"dead letters": load.pop("dead"), **load, "limit": found["limit"]["sentence"]}
        if stages := found["load"]["stages"]:
            found["stages"] = ", ".join(f"{name} {duration(took_s)}" for name, took_s in stages.items() if took_s)
    # The row of the server has name and version, and for an embedded server also its pid and restarts.
    server = [report["redis_server"]] if report.get("redis_server") else []
    if "redis_restarts" in report:
        server.append(f"embedded, pid {report['redis_pid']}" if report["redis_pid"] else "embedded")
        if restarts := report["redis_restarts"]:
            server.append(f"restarts {restarts}, last {report['redis_restarted']}")
    if server:
        found["server"] = ", ".join(server)
    return {key.replace("_", " "): found[key] for key in _ORDER if key in found}
