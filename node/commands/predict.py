"""`predict`: send records to a running job, and show the answers."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import INTERRUPTED, ExitCode, NotStarted
from cluster_serving.client.servers.process.number import POSITIVE
from cluster_serving.node.commands.frontend_options import api_key_in, frontend_options
from cluster_serving.node.commands.job_in_redis import Where, reach, where_options
from cluster_serving.node.commands.which_job import jobs_and_files

if TYPE_CHECKING:
    from cluster_serving.node.commands.predict_answers import Answer


@click.command(cls=Command, context_settings=SETTINGS)
@click.argument(
    "words", nargs=-1, required=True, metavar="[JOB] RECORD...", type=click.UNPROCESSED, shell_complete=jobs_and_files
)
@where_options
@frontend_options
@click.option(
    "--timeout",
    "timeout_s",
    type=POSITIVE,
    default=30.0,
    metavar="S",
    help="Seconds that each answer may take; 30.",
)
@click.option("--stages", is_flag=True, help="Draw where the time of each record went.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON: an object a line, with record, job, outputs, value, error and times."
)
@click.pass_context
def predict(
    context: click.Context,
    words: Sequence[str],
    where: Where,
    url: str | None,
    api_key_file: Path | None,
    timeout_s: float,
    stages: bool,
    as_json: bool,
) -> None:
    """Send records to a running job, and show the answers.

    A RECORD is a file (an image, .npy, .npz, .json or .jsonl), a folder of images, JSON ('{"x": [1, 2]}'; for a model of one input
    also '[1, 2]'), or - for standard input: a file of these kinds, or JSON a line. Numbers of JSON get the dtype of the model's
    input, and a text for an input of numbers is the path of an image. The records are sent one after the other.

    Job and Redis come from the last start on this machine, else from config.yaml. With --job and --redis-url, or --url, the command
    works from any machine. Exits with 2 for a record that cannot be read or that the model does not take, with 3 if no node serves
    the job, with 8 if no answer came in time, and with 1 if the record failed otherwise or there was no room in the queue.
    """
    from cluster_serving.node.commands.client_errors import as_faults
    from cluster_serving.node.commands.predict_json import as_json as line
    from cluster_serving.node.commands.records_given import job_and_records

    job, words = job_and_records(where.job, words, least=1)
    worst = ExitCode.OK
    try:
        with as_faults():
            for number, answer in enumerate(_answers(where._replace(job=job), url, api_key_file, words, timeout_s)):
                worst = worst or answer.exit_code
                if as_json:
                    click.echo(line(answer))
                elif answer.error is not None:
                    say(answer.failure, err=True)
                else:
                    from cluster_serving.client.servers.process.table import output_width
                    from cluster_serving.node.commands.predict_text import page

                    click.echo("\n" * bool(number) + "\n".join(page(answer, output_width(), with_stages=stages)))
    except KeyboardInterrupt:
        say("Interrupted: the answer to a record under way is dropped.", err=True)
        context.exit(INTERRUPTED)
    context.exit(worst)


def _answers(
    where: Where, url: str | None, api_key_file: Path | None, words: Sequence[str], timeout_s: float
) -> "Iterator[Answer]":
    from cluster_serving.client.errors import ConnectionLost
    from cluster_serving.client.http.frontend import Frontend
    from cluster_serving.node.commands.predict_answers import over_http, over_redis
    from cluster_serving.node.commands.records_given import records

    if url is None:
        with reach(where) as reached:
            yield from over_redis(reached, records(words), timeout_s)
        return
    try:
        yield from over_http(Frontend(url, api_key_in(api_key_file)), where.job, records(words), timeout_s)
    except ConnectionLost as error:
        raise NotStarted(str(error)) from error
