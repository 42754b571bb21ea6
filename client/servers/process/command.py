"""Base of every command: a fault ends the command with one sentence and an exit code, and `-h` works."""

import errno
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, Fault
from cluster_serving.client.servers.process.printable import printable, printable_lines


def _normal(name: str) -> str:
    """Return the name of an option as the help spells it: the original wrote `--config_path`."""
    return name.replace("_", "-")


SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": _normal,
}


@contextmanager
def writable_output() -> Generator[None]:
    """Give a program standard output and error, for a block: a closed one is the null device, and a full disk is one sentence.

    An error of any other file is a sentence too. The program exits.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        if error.filename is None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # standard output, for the text that is still buffered
        say(f"{error.filename or 'standard output'}: {error.strerror}", err=True)
        sys.exit(Fault.exit_code)


class Command(click.Command):
    """Command that ends with a sentence on standard error, and an exit code, for every fault that a person can mend."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program."""
        with writable_output():
            return super().main(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with ending_at_ctrl_c():
                found = super().invoke(ctx)
                sys.stdout.flush()
                return found
        except Fault as fault:
            click.echo(printable_lines(str(fault)), err=True)
            ctx.exit(fault.exit_code)


@contextmanager
def ending_at_ctrl_c() -> Generator[None]:
    """End a block on Ctrl-C with its exit code. click itself ends with 1."""
    try:
        yield
    except (KeyboardInterrupt, click.Abort) as error:
        # A prompt of click raises Abort for Ctrl-C, for the end of its input, and for a no.
        if isinstance(error, click.Abort) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo("\nAborted!", err=True)  # on a line of its own, after the ^C of the terminal
        raise click.exceptions.Exit(INTERRUPTED) from None


def say(text: str, *, err: bool = False) -> None:
    """Print one line for a person, on standard output or on standard error. Control characters are printed as escapes."""
    click.echo(printable(text), err=err)
