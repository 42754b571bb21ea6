"""Command `swarm render`."""

from pathlib import Path
from shlex import quote
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.swarm.commands.options import source_options


@click.command(cls=Command, context_settings=SETTINGS, short_help="Print the stack that would be deployed, or save it.")
@source_options
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write stack.yml and the files that it needs into DIR: config.yaml, a password.",
)
def render(output: Path | None, **values: Any) -> None:
    """Print the stack that a first deploy would use, with all variables filled in.

    With --output, the stack can be deployed by hand: docker stack deploy -c DIR/stack.yml serving. Render the stack again after
    every change of DIR/config.yaml. No Swarm is contacted.
    """
    from cluster_serving.swarm import stack
    from cluster_serving.swarm.commands.options import source_of

    if output is None:
        document = stack.render(source_of(values, None))
        stack.settle_names(document, values["name"])
        click.echo(stack.to_text(document), nl=False)
        return
    output.mkdir(parents=True, exist_ok=True)
    folder = output.resolve()
    source = source_of(values, None, folder)
    document = stack.render(source)
    stack.settle_names(document, source.name)
    for path in stack.make_passwords(document):
        click.echo(f"Made {path}: keep it, and keep it secret.")
    stack.save(document, folder)
    click.echo(f"Deploy with: docker stack deploy -c {quote(str(output / 'stack.yml'))} {source.name}")
