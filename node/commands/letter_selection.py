"""Selection of dead letters on a command line: by ID, all letters, or all letters with one code."""

import functools
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.process.command import say
from cluster_serving.client.servers.process.printable import printable
from cluster_serving.node.commands.completion import letter_ids

if TYPE_CHECKING:
    from cluster_serving.client.wire.dead_letter import DeadLetter
    from cluster_serving.node.writer.dead_letters import DeadLetters

_ID = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
_MAX_PART = (1 << 64) - 1
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def letter_id(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Return letter ids in full, as a callback of click. On the command line the part behind the dash may be left out."""
    if isinstance(value, tuple):
        return tuple(letter_id(context, parameter, each) for each in value)
    match = _ID.fullmatch(value)
    parts = [int(part or 0) for part in match.groups()] if match else []
    if not parts or max(parts) > _MAX_PART:
        raise click.BadParameter(
            f"{value} is not the id of a dead letter, such as 1763657000000-0: see dead-letters list"
        )
    return f"{parts[0]}-{parts[1]}"


def age_s(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Return the seconds of `30s`, `15m`, `12h`, `7d` or `2w`, as a callback of click."""
    del context, parameter
    if value is None:
        return None
    match = _AGE.fullmatch(value.strip().lower())
    if match is None:
        raise click.BadParameter(f"{value} is not an age: write 30s, 15m, 12h, 7d or 2w")
    return float(match[1]) * _SECONDS[match[2]]


def job_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return a name that a job can have, as a callback of click."""
    from cluster_serving.client.keys import check_job

    del context, parameter
    try:
        return None if value is None else check_job(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from error


class Selection:
    """Dead letters that the command line selects. `missing` counts the IDs without a letter that can be used."""

    def __init__(
        self, ids: tuple[str, ...], everything: bool, code: str | None = None, older_than_s: float | None = None
    ) -> None:
        if bool(ids) == everything:
            raise click.UsageError("Give the IDs of dead letters, or --all.")
        if ids and (code is not None or older_than_s is not None):
            raise click.UsageError("--code and --older-than choose among --all, not among IDs.")
        self._ids = dict.fromkeys(ids)
        self._everything = everything
        self._code = code
        self._older_than_s = older_than_s
        self.missing = 0

    def of(self, letters: "DeadLetters") -> "Iterator[DeadLetter]":
        """Yield the selected letters, the oldest first. An ID without a letter is named on standard error."""
        if self._everything:
            before_ms = None if self._older_than_s is None else round((time.time() - self._older_than_s) * 1000)
            found = letters.oldest_first(before_ms)
            yield from (letter for letter in found if self._code in (None, letter.reason.code))
            return
        for each in self._ids:
            letter = letters.get(each)
            if letter is None:
                self.miss(letters.job, each)
            else:
                yield letter

    def miss(self, job: str, missing: str) -> None:
        """Print that an ID has no letter, and count the ID as missing."""
        self.skip(no_such(job, missing))

    def skip(self, reason: str) -> None:
        """Print the reason why an ID is left out, and count the ID as missing."""
        say(reason, err=True)
        self.missing += 1

    def confirm(self, question: str, yes: bool) -> None:
        """Ask the user on a terminal, when `--all` is given without `--yes`.

        Raises:
            Abort: the user says no.
        """
        if self._everything and not yes and sys.stdin.isatty():
            click.confirm(printable(question), abort=True, err=True)


def selection_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the argument ID and the options `--all` and `--code` to a command. The function takes the parameter `selection`."""

    @functools.wraps(function)
    def with_selection(*, ids: tuple[str, ...], everything: bool, code: str | None, **values: Any) -> None:
        selection = Selection(ids, everything, code, values.pop("older_than_s", None))
        function(selection=selection, **values)

    command: Callable[..., None] = with_selection
    options = [
        click.argument("ids", nargs=-1, metavar="[ID]...", callback=letter_id, shell_complete=letter_ids),
        click.option("--all", "everything", is_flag=True, help="All dead letters, instead of IDs."),
        click.option("--code", help="With --all: only letters with this code, such as WorkerDied."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def no_such(job: str, missing: str) -> str:
    """Return the sentence about an ID without a letter."""
    return f"job {job} has no dead letter {missing}"
