"""Commands of `cluster-serving`, each imported when its name is asked for.

A name is looked up among the node's own commands first, then among the commands that the other parts add: entry points of the
group `cluster_serving.commands`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cluster_serving.client.servers.process.command import Command, ending_at_ctrl_c, writable_output
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.installed import node_missing

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

_GROUP = "cluster_serving.commands"


class Group(click.Group):
    """Group of the node's commands and the commands of entry points.

    Args:
        functions: command of the node to its function, as for `load`. Empty: the packages of a node are not installed.
        settings: arguments of `click.Group`.
    """

    def __init__(self, *, functions: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self.functions = functions

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program."""
        with writable_output():
            return super().main(*args, **extra)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*self.functions, *_entries().names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        function = self.functions.get(cmd_name)
        return load(function) if function is not None else _load_entry(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before the name of a command, or print the help of all commands, which imports them."""
        with ending_at_ctrl_c():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run the command that a command line names."""
        with ending_at_ctrl_c():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a command line names. Without the node installed, say so and exit."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            if self.functions:
                raise
            click.echo(node_missing(), err=True)
            ctx.exit(ExitCode.USAGE)


def load(function: str) -> click.Command:
    """Import a command of the node: `start.restart` is `restart` of the module `start` in this folder."""
    module, _, name = function.partition(".")
    command: click.Command = getattr(import_module(f"cluster_serving.node.commands.{module}"), name)
    return command


def some_installed() -> bool:
    """Return whether the packages of at least one entry point's command are installed."""
    return any(not isinstance(_load_entry(name), Missing) for name in _entries().names)


def check_installed(name: str) -> None:
    """Check that the packages of an entry point's command are installed.

    Raises:
        Fault: a package is missing.
    """
    for entry in _entries().select(name=name):
        entry.load()


def _entries() -> "EntryPoints":
    from importlib.metadata import entry_points

    return entry_points(group=_GROUP)


def _load_entry(name: str) -> click.Command | None:
    for entry in _entries().select(name=name):
        try:
            command: click.Command = entry.load()
        except Fault as fault:
            return Missing(name, fault)
        return command
    return None


class Missing(Command):
    """Stand-in for a command without its packages. A call raises the fault of the failed import."""

    def __init__(self, name: str, fault: Fault) -> None:
        def refuse(**_: Any) -> NoReturn:
            raise fault

        ignoring = {"ignore_unknown_options": True, "allow_extra_args": True}
        super().__init__(name, ignoring, refuse, short_help="Not installed.", add_help_option=False)
