"""`dead-letters`: list, show, replay, export and purge the records that no node could process."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.completion import letter_ids
from cluster_serving.node.commands.job_in_redis import Reached, Where, reach, where_options
from cluster_serving.node.commands.letter_selection import (
    Selection,
    age_s,
    job_name,
    letter_id,
    no_such,
    selection_options,
)

if TYPE_CHECKING:
    from cluster_serving.node.writer.dead_letters import DeadLetters

_JSON_OF_LIST = (
    "JSON: an object with job, total and letters: id, uri, code, message, entry, node, model, died_ms, deliveries."
)
_YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group("dead-letters", context_settings=SETTINGS)
def dead_letters() -> None:
    """Show, replay or delete records that no node could process.

    Each record is kept with the reason. Job and Redis come from the last start on this machine, else from config.yaml. With --job
    and --redis-url, the command works from any machine.
    """


@dead_letters.command("list", cls=Command, context_settings=SETTINGS)
@where_options
@click.option("-n", "--limit", type=click.IntRange(1), default=20, metavar="N", help="Show the newest N; 20.")
@click.option("--code", help="Only letters with this code, such as WorkerDied.")
@click.option("--uri", metavar="GLOB", help="Only records whose uri matches, as 'img-*'.")
@click.option("--json", "as_json", is_flag=True, help=_JSON_OF_LIST)
def list_(where: Where, limit: int, code: str | None, uri: str | None, as_json: bool) -> None:
    """List dead letters, the newest first."""
    from cluster_serving.node.commands import dead_letters_text as text

    with _reached(where) as (reached, letters):
        total = len(letters)
        rows = list(text.newest(letters, limit, code, uri))
        if as_json:
            click.echo(text.as_json({"job": reached.job, "total": total, "letters": rows}))
        elif not total:
            say(f"No dead letters in job {reached.job}.")
        else:
            shown = "" if len(rows) == total else f", {len(rows)} shown"
            say(f"Dead letters of job {reached.job}: {total} in all{shown}")
            if rows:
                text.table(rows, time.time()).show()


@dead_letters.command(cls=Command, context_settings=SETTINGS)
@click.argument("wanted", metavar="ID", callback=letter_id, shell_complete=letter_ids)
@where_options
@click.option("--json", "as_json", is_flag=True, help="JSON: an object with the same facts, and fields.")
def show(wanted: str, where: Where, as_json: bool) -> None:
    """Show everything about one dead letter."""
    from cluster_serving.client.servers.process.table import output_width
    from cluster_serving.node.commands import dead_letters_text as text

    with _reached(where) as (reached, letters):
        letter = letters.get(wanted)
        if letter is None:
            raise Fault(no_such(reached.job, wanted))
        details = text.details(letter, reached.job, hide_content=reached.config.record_encrypted)
        page = [text.as_json(details)] if as_json else text.page(details, time.time(), output_width())
        click.echo("\n".join(page))


@dead_letters.command(cls=Command, context_settings=SETTINGS)
@selection_options
@where_options
@click.option(
    "--to", "target", metavar="JOB", callback=job_name, help="Put the letters into this job; default: their own job."
)
@_YES
@click.pass_context
def replay(context: click.Context, selection: Selection, where: Where, target: str | None, yes: bool) -> None:
    """Put dead letters back into the queue, as new records.

    No client waits for the answers any more. The answers go to the result hash, where `query` finds them.
    """
    from cluster_serving.client.keys import limits_key
    from cluster_serving.node.commands import dead_letters_text as text

    with _reached(where) as (reached, letters):
        goal = target or reached.job
        if not reached.link.call("EXISTS", goal, limits_key(goal)):
            say(f"No node has served job {goal} with this Redis yet: the records will wait for one.", err=True)
        chosen: list[str] = []
        for letter in selection.of(letters):
            if letter.cut_bytes:
                selection.skip(f"dead letter {letter.id} cannot be put back: {text.kept(letter.cut_bytes)}")
            else:
                chosen.append(letter.id)
        selection.confirm(f"Put {_count(len(chosen))} of job {reached.job} back into job {goal}?", yes)
        done = 0
        try:
            for each in chosen:
                if letters.replay(each, goal) is None:  # a second command has taken the letter meanwhile
                    selection.miss(reached.job, each)
                else:
                    done += 1
        finally:  # also after an interrupt
            say(f"{_count(done)} put back into job {goal}.")
    context.exit(_exit_code(selection))


@dead_letters.command(cls=Command, context_settings=SETTINGS)
@selection_options
@where_options
@click.option("-o", "--output", required=True, metavar="FILE", help="File to write; - is standard output.")
@click.option("--force", is_flag=True, help="Write over a file that exists.")
@click.pass_context
def export(context: click.Context, selection: Selection, where: Where, output: str, force: bool) -> None:
    """Write dead letters to a file, with the whole content of the records.

    The file has a JSON object a line. Content that is not UTF-8 text stands as {"b64": ...}. Only you can read the file.
    """
    from cluster_serving.node.commands import dead_letters_text as text

    with _reached(where) as (reached, letters), text.private_file(output, force) as stream:
        done = 0
        for letter in selection.of(letters):
            stream.write(text.as_json(text.exported(letter, reached.job)) + "\n")
            done += 1
        if selection.missing and not done:
            raise Fault("nothing was written")  # a file of before stays
    say(f"{_count(done)} of job {reached.job} written.", err=True)
    context.exit(_exit_code(selection))


@dead_letters.command(cls=Command, context_settings=SETTINGS)
@selection_options
@where_options
@click.option(
    "--older-than",
    "older_than_s",
    callback=age_s,
    metavar="AGE",
    help="With --all: only letters older than AGE, as 7d.",
)
@_YES
@click.pass_context
def purge(context: click.Context, selection: Selection, where: Where, yes: bool) -> None:
    """Delete dead letters for ever."""
    with _reached(where) as (reached, letters):
        chosen = [letter.id for letter in selection.of(letters)]
        selection.confirm(f"Delete {_count(len(chosen))} of job {reached.job} for ever?", yes)
        say(f"{_count(letters.purge(chosen))} of job {reached.job} deleted.")
    context.exit(_exit_code(selection))


@contextmanager
def _reached(where: Where) -> "Generator[tuple[Reached, DeadLetters]]":
    from cluster_serving.client.keys import dead_key
    from cluster_serving.node.writer.dead_letters import DeadLetters

    with reach(where) as reached:
        kind = reached.link.call("TYPE", dead_key(reached.job)).decode()
        if kind not in {"stream", "none"}:
            raise Fault(
                f"the key {dead_key(reached.job)} in Redis is a {kind} and not a stream of dead letters: delete it"
            )
        yield reached, DeadLetters(reached.link, reached.job)


def _count(letters: int) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'}"


def _exit_code(selection: Selection) -> ExitCode:
    return ExitCode.FAILED if selection.missing else ExitCode.OK
