"""`top`: the table of `status`, live, and the workers of one job."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from cluster_serving.client.servers.process.command import SETTINGS, Command, say
from cluster_serving.client.servers.process.exit_codes import NotStarted
from cluster_serving.client.servers.process.number import Number
from cluster_serving.node.commands.job_reports import NOT_RUNNING, JobReports
from cluster_serving.node.commands.which_job import job_argument
from cluster_serving.node.lifecycle.jobs_here import not_running, was_started

if TYPE_CHECKING:
    from cluster_serving.client.servers.picture import JobPicture

_MINUTE_S, _STEP_S = 60, 1  # of the kept pictures
_BAR, _PARTS = 30, "▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_UP, _DOWN, _ENTER, _BACK, _END = ("\x1b[A", "k"), ("\x1b[B", "j"), ("\r", "\n"), ("\x1b", "\x7f"), ("q", "Q")
_KEY = re.compile(r"\x1b\[[A-Z]|.", re.DOTALL)
_READ_BYTES = 4096  # all that a terminal keeps, so that no key is cut in two
_HELP = "up, down: choose a job   enter: its workers   esc: back   q: end"

Report = Mapping[str, Any]


@click.command(cls=Command, context_settings=SETTINGS)
@job_argument
@click.option(
    "--interval",
    "interval_s",
    type=Number(0.1),
    default=1.0,
    metavar="S",
    help="Seconds between two looks; 1.",
)
def top(name: str | None, interval_s: float) -> None:
    """Show the running jobs live: rates, latencies, backlog, workers, and what limits each job.

    With NAME, or Enter on a job, it shows the workers of one job and its last minute. q ends. Where standard output is no
    terminal, a line for each job is printed at each look. Exits with 3 for a job that was never started on this machine.
    """
    from cluster_serving.client.servers.picture import JobPicture
    from cluster_serving.node.commands.load_text import cells
    from cluster_serving.node.job.directory import Job

    if name is not None and not was_started(job := Job.of(name)):
        raise NotStarted(f"{not_running(job)}.")
    try:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _on_terminal(name, interval_s)
        job_reports = JobReports()
        while True:
            for report in _reports(job_reports, name):
                figures = cells(JobPicture(**report["load"])) if "load" in report else {}
                told = "   ".join(f"{heading} {value}" for heading, value in figures.items())
                say(f"{time.strftime('%H:%M:%S')}   {report['job']}   {report['state']}   {told}".rstrip())
            time.sleep(interval_s)
    except (KeyboardInterrupt, _Ended):
        pass


class _Ended(Exception):
    """The person has pressed the key that ends."""


class View:
    """Choice of a person: the job that is marked, and whether it alone is shown. Keeps the last minute of each job."""

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._alone = name is not None
        self._reports: Sequence[Report] = ()
        self._job_reports = JobReports()
        self._history: defaultdict[str, deque[tuple[float, JobPicture]]] = defaultdict(deque)

    def look(self) -> None:
        """Read the state of the jobs."""
        self.take(_reports(self._job_reports, self._name if self._alone else None), time.monotonic())

    def take(self, reports: Sequence[Report], now_s: float) -> None:
        """Show reports, and keep the picture of each job, one a second."""
        from cluster_serving.client.servers.picture import JobPicture

        self._reports = reports
        for report in reports:
            if "load" in report:
                history = self._history[report["job"]]
                if len(history) > 1 and history[-1][0] < history[-2][0] + _STEP_S:
                    history.pop()
                history.append((now_s, JobPicture(**report["load"])))
                while history[0][0] <= now_s - _MINUTE_S:
                    history.popleft()

    def press(self, key: str) -> None:
        """Follow a key.

        Raises:
            _Ended: the key ends the command.
        """
        names = [report["job"] for report in self._reports]
        place = names.index(self._name) if self._name in names else 0
        if key in _END:
            raise _Ended
        if key in _UP + _DOWN and names:
            self._name = names[(place + (1 if key in _DOWN else -1)) % len(names)]
        elif key in _ENTER and names:
            self._name, self._alone = names[place], True
        elif key in _BACK:
            self._alone = False

    def lines(self, width: int) -> Iterator[str]:
        """Yield the lines of the screen."""
        from cluster_serving.node.commands.load_text import jobs_table

        # A job that was chosen since the last look stands among all jobs.
        shown = [report for report in self._reports if not self._alone or report["job"] == self._name]
        if not shown:
            yield "No job runs on this machine."
            return
        yield from jobs_table(shown, None if self._alone else self._name or shown[0]["job"]).lines(width)
        if self._alone and (history := self._history[shown[0]["job"]]):
            yield ""
            yield from _details([picture for _, picture in history], width)


def _reports(job_reports: JobReports, name: str | None) -> list[Report]:
    from cluster_serving.node.job.directory import Job, all_jobs

    found = [job_reports.of(job) for job in ([Job.of(name)] if name is not None else all_jobs())]
    return [report for report in found if name is not None or report["state"] != NOT_RUNNING]


def _details(history: Sequence["JobPicture"], width: int) -> Iterator[str]:
    from cluster_serving.client.servers.process.table import Table
    from cluster_serving.node.commands.load_text import duration, number

    now = history[-1]
    table = Table("", "", "")
    for name, values, text in (
        ("records/s", [each.records_s for each in history], number(now.records_s)),
        ("p99", [each.p99_s for each in history], duration(now.p99_s)),
        ("backlog", [float(each.backlog) for each in history], f"{now.backlog:,}"),
    ):
        table.add(name, sparkline(values[-(width - 24) :]), text)
    shares = {f"worker {number}": share for number, share in enumerate(now.busy)}
    for name, share in {**shares, "reader": now.reader, "Redis": now.redis, "machine": now.machine}.items():
        table.add(name, bar(share), f"{share:.0%}")
    yield from table.lines(width)


def keys(typed: str) -> list[str]:
    """Return the keys that were pressed since the last look. An arrow is three characters."""
    return _KEY.findall(typed)


def sparkline(values: Sequence[float]) -> str:
    """Return values as a line of bars, of which the highest has full height."""
    highest = max(values, default=0.0) or 1.0
    return "".join(_LEVELS[round(value / highest * (len(_LEVELS) - 1))] for value in values)


def bar(share: float) -> str:
    """Return a share from 0 to 1 as a bar of up to 30 characters."""
    eighths = round(min(1.0, share) * _BAR * len(_PARTS))
    return "█" * (eighths // len(_PARTS)) + (_PARTS[eighths % len(_PARTS) - 1] if eighths % len(_PARTS) else "")


def _on_terminal(name: str | None, interval_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from cluster_serving.client.servers.process.table import output_width

    view, keyboard = View(name), sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        with Live(auto_refresh=False, screen=True) as live:
            while True:
                view.look()
                until_s = time.monotonic() + interval_s
                while True:
                    shown = [*view.lines(output_width()), "", _HELP]
                    live.update(Text.from_ansi("\n".join(shown)), refresh=True)
                    left_s = until_s - time.monotonic()
                    if left_s <= 0 or not select.select([keyboard], [], [], left_s)[0]:
                        break
                    for key in keys(os.read(keyboard, _READ_BYTES).decode(errors="replace")):
                        view.press(key)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
