"""Command `swarm update-model`."""

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import name_option, timeout_option


@click.command(cls=Command, context_settings=SETTINGS, short_help="Serve a new model without a pause.")
@click.argument("reference", metavar="REF")
@click.option("--checksum", metavar="sha256:HEX", default="", help="Checksum of a model that comes by URL.")
@click.option("--force", is_flag=True, help="Restart the nodes even when the model's place is unchanged.")
@name_option
@timeout_option
def update_model(reference: str, checksum: str, force: bool, name: str, timeout_s: float) -> None:
    """Serve a new model without a pause: each new node is ready before an old node stops.

    REF is a URL, or a directory below the directory that the nodes mount, given by its path on the machines or by its name. Give
    each version of a model its own directory. When a model cannot be loaded, Swarm rolls the update back, and the exit code is 1.
    """
    from cluster_serving.swarm import docker
    from cluster_serving.swarm.live import read_stack
    from cluster_serving.swarm.variables import MODEL_CHECKSUM, MODEL_PATH, model_in_container
    from cluster_serving.swarm.watching import goes_on_without_us, wait_until_settled

    before = read_stack(name)
    node = before.service("node")
    wanted = {MODEL_PATH: model_in_container(reference, node), MODEL_CHECKSUM: checksum}
    had = {key: node.environ.get(key, "") for key in wanted}
    if wanted == had and not force:
        click.echo(f"The nodes of stack {name} serve {wanted[MODEL_PATH]} already; --force starts them anew.")
        return
    variables = [word for key, value in wanted.items() for word in ("--env-add", f"{key}={value}")]
    options = ["--update-order", "start-first", "--update-failure-action", "rollback", *(["--force"] if force else [])]
    with goes_on_without_us("update", name):
        docker.run(["service", "update", "--detach", "--quiet", *options, *variables, f"{name}_node"])
        wait_until_settled(name, before, timeout_s)
    click.echo(
        f"The nodes of stack {name} serve {wanted[MODEL_PATH]}; it was {had[MODEL_PATH] or 'that of config.yaml'}."
    )
