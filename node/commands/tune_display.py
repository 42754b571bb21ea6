"""Progress display of `tune`."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cluster_serving.client.servers.process.signals import Signals
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.tuning.search import SearchProgress, Tried


class TuneDisplay(SearchProgress):
    """Progress bar that grows with each shape, beside the candidate measured last."""

    def __init__(self, progress: Progress, signals: Signals) -> None:
        self._progress = progress
        self._task = TaskID(0)
        self._signals = signals

    def begin(self, shapes: list[Shape]) -> None:
        """Show an empty bar."""
        self._task = self._progress.add_task("loading the model", total=1 + len(shapes))

    def opening(self, shape: Shape) -> None:
        """Advance the bar to the next shape."""
        self._progress.update(self._task, advance=1, description=f"{shape.described()}: loading")

    def check(self) -> None:
        """End the tuning when a signal waits."""
        self._signals.check()

    def tried(self, tried: Tried) -> None:
        """Show the figure of a candidate, or its refusal."""
        shape, batch = tried.candidate
        what = (tried.refused and "refused") or f"{tried.turns[-1].rate:,.0f} records/s"
        self._progress.update(self._task, description=f"{shape.described()}, batch {batch}: {what}")


@contextmanager
def display(terminal: TextIO, signals: Signals) -> Generator[SearchProgress]:
    """Show the progress on a terminal. Without a terminal nothing is shown."""
    columns = (TextColumn("{task.description:<52.52}", markup=False), BarColumn(16), TimeElapsedColumn())
    console = Console(file=terminal)
    progress = Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,  # the log of this process goes to a file
        redirect_stderr=False,
    )
    with progress, signals.waiting():
        yield TuneDisplay(progress, signals)


@contextmanager
def diverted(path: Path) -> Generator[TextIO]:
    """Send the output of this process and its children to a file for a block. Yields the former standard error."""
    streams = (sys.stdout, sys.stderr)
    kept = [os.dup(number) for number in (1, 2)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for number in (1, 2):
            os.dup2(file, number)
        with os.fdopen(kept[1], "w", closefd=False) as terminal:
            yield terminal
    finally:
        for stream in streams:
            stream.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
        for descriptor in (*kept, file):
            os.close(descriptor)
