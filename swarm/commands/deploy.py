"""Command `swarm deploy`."""

from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.commands.options import source_options, timeout_option


@click.command(cls=Command, context_settings=SETTINGS, short_help="Start or update a stack; wait until it is ready.")
@source_options
@click.option(
    "--resolve-image",
    type=click.Choice(["always", "changed", "never"]),
    default="always",
    help="When to ask the registry for image digests; never: every machine already has the images.",
)
@click.option("--with-registry-auth", is_flag=True, help="Let the machines pull with your login.")
@timeout_option
def deploy(resolve_image: str, with_registry_auth: bool, timeout_s: float, **values: Any) -> None:
    """Start or update a stack, and return when every service is ready.

    Values given neither as options nor in the environment stay as in the running stack: number of nodes, model, images.
    config.yaml and redis_password.txt are read from the current folder. A missing password is generated. A service whose update
    fails is rolled back.
    """
    from cluster_serving.swarm import stack
    from cluster_serving.swarm.commands.findings import count, lines
    from cluster_serving.swarm.commands.options import source_of
    from cluster_serving.swarm.lint.check import check
    from cluster_serving.swarm.live import find_stack, machine_labels
    from cluster_serving.swarm.watching import goes_on_without_us, wait_until_settled

    before = find_stack(values["name"])
    source = source_of(values, before)
    document = stack.render(source)
    stack.settle_names(document, source.name)
    if set(stack.REDIS) <= document["services"].keys():
        stack.check_places(document, machine_labels())
    if before is not None:
        stack.check_replicas(document, before)
        for name in stack.keep_what_runs(document, before):
            click.echo(f"Keeping {name}, which the stack has; its file is not here.")
    for path in stack.make_passwords(document):
        click.echo(f"Made {path}: keep it, and keep it secret.")
    found = check(document)
    for line in lines(found):
        click.echo(line, err=True)
    if any(finding.level == "error" for finding in found):
        raise Fault(f"Nothing is deployed: {count(found)}")
    options = ["--resolve-image", resolve_image, *(["--with-registry-auth"] if with_registry_auth else [])]
    with goes_on_without_us("deploy", source.name):
        _deploy(source.name, stack.to_text(document), options)
        wait_until_settled(source.name, before, timeout_s)
    click.echo(f"Stack {source.name} is ready.")
    for name, service in document["services"].items():
        for port in service.get("ports") or ():
            if port.get("published"):
                where = "the machines that run it" if port.get("mode") == "host" else "every machine"
                click.echo(f"{name}: port {port['published']} of {where}")


def _deploy(name: str, text: str, options: list[str]) -> None:
    from cluster_serving.swarm import docker

    try:
        docker.run(["stack", "deploy", "--detach=true", *options, "-c", "-", name], stdin=text, timeout_s=300)
    except docker.DockerFailed as error:
        if "only updates to Labels are allowed" in str(error):
            raise Fault(
                f"{error}\nSwarm never changes a secret. Put the old content back, or end the stack first: cluster-serving swarm rm"
            ) from error
        if "mode change is not allowed" in str(error):
            raise Fault(
                f"{error}\nSwarm never changes a number of tasks into one on every machine, or back. Give --with global as at the "
                "first deploy, or end the stack first: cluster-serving swarm rm"
            ) from error
        raise
