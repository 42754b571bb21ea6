"""Command `swarm logs`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import name_option


@click.command(cls=Command, context_settings=SETTINGS, short_help="Print the end of a service's log.")
@click.argument("service", default="node", metavar="[SERVICE]")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they come, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, metavar="N", help="Lines from the end, of each task; 50."
)
@name_option
@click.pass_context
def logs(context: click.Context, /, service: str, follow: bool, lines: int, name: str) -> None:
    """Print the end of the log of the nodes, or of the service frontend or redis."""
    from contextlib import suppress

    from cluster_serving.swarm import docker
    from cluster_serving.swarm.live import read_stack

    read_stack(name).service(service)
    options = ["--no-task-ids", "--tail", str(lines), *(["--follow"] if follow else [])]
    with suppress(KeyboardInterrupt):  # Ctrl-C ends --follow
        context.exit(docker.attach(["service", "logs", *options, f"{name}_{service}"]))
