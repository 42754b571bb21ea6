"""Commands that other parts bring to `cluster-serving`: entry points of the group `cluster_serving.commands`.

None is imported before it is asked for, and none is asked for before the node's own.
"""

from importlib.metadata import EntryPoints, entry_points
from typing import Any, NoReturn

import click

from cluster_serving.client.servers.process.command import Command
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.installed import NODE_MISSING

_GROUP = "cluster_serving.commands"


class Group(click.Group):
    """The node's commands, which are none where the node is not installed, and those that are brought."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return sorted({*super().list_commands(ctx), *_entries().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them."""
        return super().get_command(ctx, cmd_name) or _load(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the one that a command line names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if self.commands:
                raise
            click.echo(NODE_MISSING, err=True)
            ctx.exit(ExitCode.USAGE)


def some_installed() -> bool:
    """Whether what at least one of them needs is installed."""
    return any(not isinstance(_load(name), _Missing) for name in _entries().names)


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
    """Stands for a command whose packages are not installed, and says so."""

    def __init__(self, name: str, fault: Fault) -> None:
        def refuse(**_: Any) -> NoReturn:
            raise fault

        ignoring = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, ignoring, refuse, short_help="Not installed.", add_help_option=False)
