"""Commands that the other parts add to `cluster-serving`: entry points of the group `cluster_serving.commands`.

A name is looked up among the node's own commands first. An entry point is imported when its name is asked for.
"""

from importlib.metadata import EntryPoints, entry_points
from typing import Any, NoReturn

import click

from cluster_serving.client.servers.process.command import Command
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.installed import node_missing

_GROUP = "cluster_serving.commands"


class Group(click.Group):
    """Group of the node's commands and the commands of entry points. Without the node installed, only entry points are left."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *_entries().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        return super().get_command(ctx, cmd_name) or _load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a command line names. Without the node installed, say so and exit."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if self.commands:
                raise
            click.echo(node_missing(), err=True)
            ctx.exit(ExitCode.USAGE)


def some_installed() -> bool:
    """Return whether the packages of at least one entry point's command are installed."""
    return any(not isinstance(_load(name), _Missing) for name in _entries().names)


def check_installed(name: str) -> None:
    """Check that the packages of an entry point's command are installed.

    Raises:
        Fault: a package is missing.
    """
    for entry in _entries().select(name=name):
        entry.load()


def _entries() -> EntryPoints:
    return entry_points(group=_GROUP)


def _load(name: str) -> click.Command | None:
    for entry in _entries().select(name=name):
        try:
            command: click.Command = entry.load()
        except Fault as fault:
            return _Missing(name, fault)
        return command
    return None


class _Missing(Command):
    """Stand-in for a command without its packages. A call raises the fault of the failed import."""

    def __init__(self, name: str, fault: Fault) -> None:
        def refuse(**_: Any) -> NoReturn:
            raise fault

        ignoring = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, ignoring, refuse, short_help="Not installed.", add_help_option=False)
