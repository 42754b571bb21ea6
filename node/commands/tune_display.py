"""What a person sees while `tune` measures, and how he ends it."""

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cluster_serving.node.config.choice import Shape
from cluster_serving.node.tuning.search import SearchProgress, Tried


class Told(BaseException):
    """All is to end, by the signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Signals:
    """SIGINT and SIGTERM: the first one ends all, clean-up is not cut short by a second. While something is measured it waits."""

    def __init__(self) -> None:
        self._number = 0
        self._waits = False

    def check(self) -> None:
        """Notice a signal that waits.

        Raises:
            Told: there is one.
        """
        if self._number:
            raise Told(self._number)

    @contextmanager
    def heard(self) -> Generator[None]:
        """Listen, for a block."""
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Leave it to `check`, for a block."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        first, self._number = not self._number, self._number or number
        if first and not self._waits:
            raise Told(number)


class TuneDisplay(SearchProgress):
    """A bar that grows with each shape, and the candidate that was measured last."""

    def __init__(self, progress: Progress, signals: Signals) -> None:
        self._progress = progress
        self._task = TaskID(0)
        self._signals = signals

    def begin(self, shapes: list[Shape]) -> None:
        """Measuring begins."""
        self._task = self._progress.add_task("loading the model", total=1 + len(shapes))

    def opening(self, shape: Shape) -> None:
        """The next shape."""
        self._progress.update(self._task, advance=1, description=f"{shape.described()}: loading")

    def check(self) -> None:
        """End it, if somebody wants that."""
        self._signals.check()

    def tried(self, tried: Tried) -> None:
        """A figure."""
        shape, batch = tried.candidate
        what = (tried.refused and "refused") or f"{tried.turns[-1].rate:,.0f} records/s"
        self._progress.update(self._task, description=f"{shape.described()}, batch {batch}: {what}")


@contextmanager
def display(terminal: TextIO, signals: Signals) -> Generator[SearchProgress]:
    """Show how it goes, on a terminal; elsewhere nothing is shown."""
    columns = (TextColumn("{task.description:<52.52}", markup=False), BarColumn(16), TimeElapsedColumn())
    console = Console(file=terminal)
    progress = Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        redirect_stdout=False,  # what this process logs goes elsewhere
        redirect_stderr=False,
    )
    with progress, signals.waiting():
        yield TuneDisplay(progress, signals)


@contextmanager
def diverted(path: Path) -> Generator[TextIO]:
    """Have all that this process and its children print go to a file, for a block; standard error as it was is given."""
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
