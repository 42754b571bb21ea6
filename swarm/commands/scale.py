"""Command `swarm scale`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import name_option, timeout_option

_SCALED = {"node": "min and max", "frontend": "frontendsMin and frontendsMax"}


@click.command(cls=Command, context_settings=SETTINGS, short_help="Set the number of nodes.")
@click.argument("number", type=click.IntRange(0), metavar="N")
@click.option("--service", default="node", metavar="SERVICE", help="Service to scale, node or frontend; node.")
@name_option
@timeout_option
def scale(number: int, service: str, name: str, timeout_s: float) -> None:
    """Set the number of nodes to N, and return when all N are ready.

    Surplus nodes finish the records that they have read. A later deploy keeps the number.
    """
    from cluster_serving.client.servers.process.exit_codes import Fault
    from cluster_serving.swarm import docker
    from cluster_serving.swarm.live import read_stack
    from cluster_serving.swarm.stack import REDIS, SENTINELS
    from cluster_serving.swarm.watching import goes_on_without_us, wait_until_settled

    before = read_stack(name)
    replicated = before.service(service).spec.mode.replicated
    if replicated is None:
        raise Fault(f"service {service} of stack {name} is global: it has one task on every machine it may use")
    if service in REDIS:
        raise Fault(
            f"{service} has one task: a second one would be a queue of its own; deploy --with replicas has copies"
        )
    if service in SENTINELS:
        raise Fault(f"{service} has one task: a master is chosen by most of {', '.join(SENTINELS)}")
    if service in _SCALED and "autoscaler" in before.services:
        told = f"The autoscaler of stack {name} may set another number soon"
        click.echo(f"{told}: change {_SCALED[service]} below autoscale: in config.yaml, and deploy.", err=True)
    with goes_on_without_us("change", name):
        docker.run(["service", "scale", "--detach", f"{name}_{service}={number}"])
        wait_until_settled(name, before, timeout_s, drained=True)
    click.echo(f"Stack {name} has {number} of {service}; it had {replicated.replicas}.")
