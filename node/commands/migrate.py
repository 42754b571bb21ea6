"""`migrate`: bring a config file of the original over, and try the records of its stream."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from cluster_serving.node.config.migration import Migration

_VERSIONS = {
    "nightly": "a development version between 0.8 and 0.9",
    "0.10": "0.10 to 0.12",
    "2.x": "BigDL 2.x",
}


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument("old", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Read the records that wait in the old stream, and print no file.")
@click.option("--redis-url", help="With --dry-run: host:port or URL of Redis; default: that of OLD.")
@click.pass_context
def migrate(context: click.Context, old: Path, dry_run: bool, redis_url: str | None) -> None:
    """Print OLD, a config file of Analytics Zoo or BigDL, in the form of this version.

    The new file is printed on standard output, and each change with its reason on standard error:
    cluster-serving migrate old.yaml > config.yaml

    With --dry-run the records in the old stream are decoded as a node would decode them. They are only looked at: the old
    servers still get each of them.
    """
    from cluster_serving.node.config import migration

    if redis_url is not None and not dry_run:
        raise click.UsageError("--redis-url goes with --dry-run; the new file has the redisUrl of the old one.")
    found = migration.migrate(old)
    if dry_run:
        from cluster_serving.node.commands.migration_trial import try_streams

        context.exit(ExitCode.OK if try_streams(found, redis_url) else ExitCode.FAILED)
    click.echo(found.text(old.name), nl=False)
    _tell(found, old)


def _tell(found: "Migration", old: Path) -> None:
    """Print the changes on standard error."""
    from cluster_serving.client.servers.process.table import Table, output_width

    table = Table("line", "before", "now", numbers=("line",), wide=("before", "now"))
    for change in found.changes:
        now = "the same" if change.now == change.before else change.now or "gone"
        row = str(change.line) if change.line else "new", change.before or "-", now
        table.add(*row, style="bold" if change.must_act else None)
        if change.why:
            table.add_below(f"{'To do: ' if change.must_act else ''}{change.why}.")
    version = _VERSIONS.get(found.version, found.version)
    if sys.stdout.isatty():
        click.echo(err=True)
    say(f"{old} is a file of {version}.", err=True)
    click.echo("\n".join(table.lines(output_width(err=True))), err=True)
    if sys.stdout.isatty():
        new = "config.yaml" if old.name != "config.yaml" else "new.yaml"
        click.echo(
            f"Next: cluster-serving migrate {shlex.quote(str(old))} > {new}\n      cluster-serving start -c {new}",
            err=True,
        )
