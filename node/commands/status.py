"""`status`: the state of a job on this machine, and the last heartbeat of its node in Redis."""

import json
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.client.servers.process.quick_imports import import_lean
from cluster_serving.node.commands.job_reports import NOT_RUNNING, NUMBERS, JobReports
from cluster_serving.node.commands.which_job import job_argument
from cluster_serving.node.lifecycle.jobs_here import not_running, was_started

if TYPE_CHECKING:
    from cluster_serving.client.wire.heartbeat import Shadow

_LOAD = ("rec/s", "p50", "p99", "oldest", "fill", "busy", "err/s", "dead letters")
_MANY = 10_000  # records from which on a bound says no more than the share, and takes long to compute
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
        "tried",
        "shadow",
        "budget",
        "workers",
    ),
    *(
        "threads",
        "batching",
        "batch_size",
        *NUMBERS,
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
    import_lean("structlog", "redis")
    reports_of = JobReports()
    found = [reports_of.of(job) for job in known]
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


def rows(report: dict[str, Any]) -> dict[str, Any]:
    """Return name to value of the facts that people are shown about a job, in their order."""
    import msgspec

    from cluster_serving.client.servers.picture import JobPicture
    from cluster_serving.client.wire.heartbeat import Shadow, release
    from cluster_serving.node.commands.load_text import cells, duration
    from cluster_serving.node.models.runtime import TriedRuntime

    found = {key: value for key, value in report.items() if value is not None}
    if candidates := found.get("candidates"):
        tried = msgspec.convert(candidates, tuple[TriedRuntime, ...])
        found["tried"] = ". ".join(one.described() for one in tried)
    if "shadow" in found:
        found["shadow"] = _shadow_text(msgspec.convert(found["shadow"], Shadow))
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


def _shadow_text(shadow: "Shadow") -> str:
    """Return the agreement of the records that were compared, and why no more are."""
    from cluster_serving.node.engines.agreement import Agreement, percent

    agreement, parts = Agreement(shadow.agreeing, shadow.records), list[str]()
    if shadow.records > _MANY:
        parts.append(f"{percent(agreement.share)} of {shadow.records:,} records agree")
    elif shadow.records:
        parts.append(agreement.described())
    if shadow.nothing:
        parts.append(f"nothing is compared{' any more' if shadow.records else ''}: {shadow.nothing}")
    return "; ".join(parts) or f"{percent(shadow.share)} of the records, none yet"
