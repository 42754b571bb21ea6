"""Display of a stack's progress: a table that changes in place on a terminal, else a line for each change."""

from types import TracebackType

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cluster_serving.client.servers.process.printable import printable
from cluster_serving.swarm.progress import Progress


class View:
    """Context manager that displays progress.

    Attributes:
        problem: reason why the progress is not up to date, or empty.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._shown: dict[str, str] = {}

    def __enter__(self) -> "View":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, now: list[Progress], elapsed_s: float) -> None:
        """Show the progress of the services."""
        if self._live:
            table = Table.grid(padding=(0, 2))
            for one in now:
                mark = Text("+", "green") if one.is_settled else Text("-", "yellow")
                state = Text(printable(one.sentence()), overflow="ellipsis", no_wrap=True)
                table.add_row(mark, one.service, f"{one.ready}/{one.wanted}", state)
            problem = Text(printable(self.problem), "red", overflow="ellipsis", no_wrap=True)
            table.add_row("", "", f"{elapsed_s:.0f} s", problem)
            self._live.update(table, refresh=True)
            return
        for one in now:
            self._say(one.service, f"{one.service} {one.ready}/{one.wanted} {one.sentence()}", elapsed_s)
        self._say("", self.problem, elapsed_s)

    def _say(self, about: str, line: str, elapsed_s: float) -> None:
        if line and self._shown.get(about) != line:
            click.echo(f"{elapsed_s:4.0f} s  {printable(line)}")
        self._shown[about] = line
