"""Command `swarm status`."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.swarm.commands.options import json_option, name_option

if TYPE_CHECKING:
    from cluster_serving.swarm.frontends import Known
    from cluster_serving.swarm.live import Stack, Task
    from cluster_serving.swarm.progress import Progress

_NOT_SHOWN = {"shutdown", "complete", "remove"}
_FAILED = {"failed", "rejected"}
_UNITS = (("d", 86_400), ("h", 3600), ("m", 60))  # largest first, in seconds


@click.command(cls=Command, context_settings=SETTINGS, short_help="Show the state of a stack, its tasks and its nodes.")
@name_option
@json_option("an object with stack, services, tasks, nodes, jobs and problem")
@click.pass_context
def status(context: click.Context, /, name: str, as_json: bool) -> None:
    """Show the state of a stack: its services, its tasks on each machine, and its nodes.

    Exits with 0 when every service is ready, with 3 when no stack of this name runs, and with 1 otherwise. The state of the nodes
    comes from a frontend, if a frontend can be reached from here. A failed task is shown until a new task runs in its place.
    """
    from cluster_serving.swarm.frontends import ask
    from cluster_serving.swarm.live import read_stack
    from cluster_serving.swarm.progress import progress_of

    stack = read_stack(name)
    services = [progress_of(service, spec, stack) for service, spec in stack.services.items()]
    tasks = _tasks(stack)
    known = ask(stack)
    if as_json:
        report = {
            "stack": name,
            "services": [vars(one) | {"settled": one.is_settled} for one in services],
            "tasks": tasks,
            "nodes": [{"job": job, "node": node, **numbers} for (job, node), numbers in known.nodes.items()],
            "jobs": known.jobs,
            "problem": known.problem or None,
        }
        click.echo(json.dumps(report, indent=2))
    else:
        show(services, tasks, known)
    if not all(one.is_settled for one in services):
        context.exit(ExitCode.FAILED)


def _tasks(stack: "Stack") -> list[dict[str, str]]:
    """Return a row for each live task, and for the newest failure of each place (slot or machine) without a running task."""
    from cluster_serving.swarm.reasons import explained

    rows: list[dict[str, str]] = []
    for name, service in stack.services.items():
        running = {_place(task) for task in stack.tasks_of(service) if task.status.state == "running"}
        told: set[str] = set()
        for task in stack.tasks_of(service):
            place, state = _place(task), task.status.state
            if state in _NOT_SHOWN or (state in _FAILED and (place in running or place in told)):
                continue
            told |= {place} if state in _FAILED else set()
            leaving = ", leaving" if state == "running" and task.desired_state != "running" else ""
            error = f": {explained(task)}" if task.status.err else ""
            age = "-"
            if task.status.timestamp:
                then = datetime.fromisoformat(task.status.timestamp[:19]).replace(tzinfo=UTC)
                seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
                age = next((f"{seconds // size} {unit}" for unit, size in _UNITS if seconds >= size), f"{seconds} s")
            rows.append(
                {
                    "task": f"{name}.{task.slot}" if task.slot else name,
                    "machine": stack.machine_of(task),
                    "for": age,
                    "state": f"{state}{leaving}{error}",
                }
            )
    return sorted(rows, key=lambda row: row["task"])


def _place(task: "Task") -> str:
    return str(task.slot or task.node_id)


def show(services: "list[Progress]", tasks: list[dict[str, str]], known: "Known") -> None:
    """Print tables of the services, the tasks and the nodes, and a sentence about each job."""
    from cluster_serving.client.servers.process.printable import printable
    from cluster_serving.client.servers.process.table import Table

    table = Table("service", "ready", "", numbers={"ready"})
    for one in services:
        table.add(one.service, f"{one.ready}/{one.wanted}", one.sentence())
    table.show()
    click.echo()
    table = Table("task", "machine", "for", "state", wide={"state"})
    for task in tasks:
        table.add(*task.values())
    table.show()
    click.echo()
    if known.problem:
        click.echo(f"The state of the nodes is unknown: {printable(known.problem)}.")
        return
    if not known.nodes:
        click.echo("No node reports anything.")
        return
    counts = ("answered", "failed", "restarts")
    table = Table("node", "job", "says", "workers", *counts, numbers={"workers", *counts}, wide={"node", "job"})
    for (job, node), numbers in sorted(known.nodes.items()):
        says = "ready" if numbers.get("node_ready") else "not ready"
        workers = f"{numbers.get('workers_alive', 0):.0f}/{numbers.get('workers', 0):.0f}"
        totals = ("records_answered_total", "records_failed_total", "restarts_total")
        table.add(node, job, says, workers, *(f"{numbers.get(total, 0):.0f}" for total in totals))
    table.show()
    click.echo()
    for job, numbers in sorted(known.jobs.items()):
        waiting, oldest_s, dead = (numbers.get(key, 0) for key in ("backlog", "oldest_age_seconds", "dead_letters"))
        sentence = f"{waiting:.0f} records wait, the oldest for {oldest_s:.1f} s; {dead:.0f} dead letters"
        click.echo(f"{printable(job)}: {sentence}")
