"""Command `swarm rm`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import name_option, timeout_option


@click.command(cls=Command, context_settings=SETTINGS, short_help="End a stack; its volumes stay.")
@name_option
@timeout_option
def rm(name: str, timeout_s: float) -> None:
    """End a stack, and return when its tasks and networks are gone.

    Nodes finish the records that they have read. The volumes stay, with the records in Redis. A later deploy under the same name
    continues with both.
    """
    from cluster_serving.swarm import docker
    from cluster_serving.swarm.live import NoStack, read_stack
    from cluster_serving.swarm.watching import goes_on_without_us, wait_until_gone

    try:
        stack = read_stack(name)
    except NoStack:
        # A deploy that Docker refused half-way leaves secrets and a network behind.
        if removed := docker.run(["stack", "rm", name]).strip():
            click.echo(removed)
            return
        raise
    with goes_on_without_us("removal", name):
        click.echo(f"Removing stack {name}: {', '.join(stack.services)}.")
        docker.run(["stack", "rm", name])
        wait_until_gone(stack, timeout_s)  # Docker's own wait returns at once with some engines
    click.echo(f"Stack {name} is gone.")
    volumes = sorted(
        mount["Source"]
        for service in stack.services.values()
        for mount in service.container.get("Mounts") or ()
        if mount["Type"] == "volume"
    )
    if volumes:
        click.echo(f"Its volumes stay on the machines that had them: {', '.join(volumes)} (docker volume rm).")
