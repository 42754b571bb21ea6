"""Command `swarm check`."""

import json
from typing import Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command
from cluster_serving.client.servers.process.exit_codes import ExitCode
from cluster_serving.swarm.commands.options import json_option, source_options


@click.command(cls=Command, context_settings=SETTINGS, short_help="Check a stack before it is deployed.")
@source_options
@json_option("an array of findings: level, service, what and mend")
@click.pass_context
def check(context: click.Context, /, as_json: bool, **values: Any) -> None:
    """Check a stack before it is deployed.

    Exits with 1 when there is an error: a setting that would lose records, reveal a secret, or not work. A warning marks a
    setting that may be intended. No Swarm is contacted.
    """
    from cluster_serving.swarm import stack
    from cluster_serving.swarm.commands.findings import count, lines
    from cluster_serving.swarm.commands.options import source_of
    from cluster_serving.swarm.lint import check as lint

    found = lint.check(stack.render(source_of(values, None)))
    if as_json:
        click.echo(json.dumps([vars(finding) for finding in found], indent=2))
    else:
        for line in lines(found):
            click.echo(line)
        click.echo(count(found))
    if any(finding.level == "error" for finding in found):
        context.exit(ExitCode.FAILED)
