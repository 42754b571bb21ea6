"""`profile`: a flame graph of a running process, recorded from outside."""

import html
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.commands.processes import FRONTEND, find, process_arguments
from cluster_serving.node.commands.which_job import chosen_job

_TITLE = re.compile(r'(<text id="title"[^>]*>)[^<]*')
_SAMPLES = re.compile(r"Samples: (\d+)")


@click.command(cls=Command, context_settings=SETTINGS)
@process_arguments
@click.option("--seconds", type=click.IntRange(1), default=10, metavar="S", help="Seconds to record; 10.")
@click.option("--rate", type=click.IntRange(1, 1000), default=100, metavar="N", help="Samples a second; 100.")
@click.option("--native", is_flag=True, help="Show C and C++ frames too.")
@click.option("--idle", is_flag=True, help="Count threads that wait, too.")
@click.option(
    "-o", "--output", metavar="FILE", help="SVG file to write; default: profile-NAME.svg, as profile-worker-0.svg."
)
def profile(
    *,
    job: str | None,
    role: str | None,
    number: int | None,
    seconds: int,
    rate: int,
    native: bool,
    idle: bool,
    output: str | None,
) -> None:
    """Record where a running process spends its time, as a flame graph for the browser.

    Without a role, a worker is recorded. The process goes on working meanwhile, a little slower. Ctrl-C ends the recording early.
    """
    from cluster_serving.node.commands.py_spy import spy

    node = chosen_job(job)
    target, *others = find(node, role or "worker", number)
    name = output or f"profile-{target.name}.svg"
    options = ["--duration", str(seconds), "--rate", str(rate)]
    options += [word for word, given in (("--native", native), ("--idle", idle)) if given]
    with _written(Path(name)) as draft:
        also = f"; the first of {1 + len(others)}, --process takes another" if others else ""
        click.echo(f"Recording {target} for {seconds} s{also}.", err=True)
        said = spy(target, "record", *options, "--output", str(draft))
        found = _SAMPLES.search(said)
        samples = int(found[1]) if found else 0
        if not samples:
            raise Fault(f"{target} did nothing for {seconds} s: send records meanwhile, or give --idle")
        whose = "" if role == FRONTEND else f" of job {node.name}"
        title = html.escape(f"{target}{whose}: {samples} samples in {seconds} s at {rate} a second")
        # Put the name of the process into the title, where py-spy writes its own command line.
        svg = draft.read_text(encoding="utf-8")
        draft.write_text(_TITLE.sub(lambda tag: tag[1] + title, svg, count=1), encoding="utf-8")
    say(f"{name}: {samples} samples")


@contextmanager
def _written(path: Path) -> Generator[Path]:
    """Yield a draft file for a block, and move the draft to `path` afterwards.

    The draft lies in the same directory, so a directory without write permission is found before the recording.

    Raises:
        Fault: the path exists and is not a file.
        OSError: the draft cannot be written.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise Fault(f"{path} is not a file: give another --output")
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.touch(exist_ok=False)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
