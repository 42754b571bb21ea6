"""The style of every printed table: bold headings, numbers on the right, two spaces between columns, and no lines.

On a terminal a table has 80 columns at most. Where two spaces have no room there is one, and values without room are folded. In a
pipe every row is one line with the whole values, without colours. Importing rich takes a tenth of a second, so only commands that
print a table import this module.
"""

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from shutil import get_terminal_size
from typing import Literal

import click
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from cluster_serving.client.servers.process.printable import printable

_WIDTH = 80
_PIPE = 1 << 30  # wider than any row
_BELOW = "\ue000"  # place of a line below a row; `printable` escapes private characters, so no value has this line
_BELOW_INDENT = 4
_FEW = 8  # characters of a wide column that are worth keeping the others whole

Cell = str | int | tuple[str, str]
"""Value, or text and its rich style."""


class Table:
    """Table that makes its values harmless: control characters are printed as escapes, markup as it is.

    Args:
        headings: a heading for each column, with the unit of its numbers. Without any text in the headings there is no header.
        numbers: headings of columns with numbers.
        wide: headings of columns that give way first, where a terminal has no room for all.
        cut: end values and lines below a row with "…" where a terminal has no room, instead of folding.
        indent: empty columns on the left.
    """

    def __init__(
        self,
        *headings: str,
        numbers: Collection[str] = (),
        wide: Collection[str] = (),
        cut: bool = False,
        indent: int = 0,
    ) -> None:
        self._overflow: Literal["ellipsis", "fold"] = "ellipsis" if cut else "fold"
        self._table = RichTable(box=None, pad_edge=False, show_header=any(headings), header_style="bold")
        for heading in headings:
            self._table.add_column(heading, justify="right" if heading in numbers else "left", overflow=self._overflow)
        self._headings = headings
        self._wide = wide
        self._indent = indent
        self._widths = [len(heading) for heading in headings]
        self._below: list[Text] = []

    def add(self, *cells: Cell, style: str | None = None) -> None:
        """Add a row, in a rich style."""
        parts = [cell if isinstance(cell, tuple) else (str(cell), "") for cell in cells]
        texts = [self._text(text, own) for text, own in parts]
        self._table.add_row(*texts, style=style)
        for column, text in enumerate(texts):
            self._widths[column] = max(self._widths[column], text.cell_len)

    def add_below(self, text: str) -> None:
        """Add an indented line below the last row, across all columns."""
        self._table.add_row(_BELOW)
        self._below.append(self._text(text))

    def lines(self, width: int) -> Iterator[str]:
        """Yield the lines of the table in `width` columns, in colours if standard output is a terminal with colours."""
        console = Console(
            width=max(1, width - self._indent),
            force_terminal=sys.stdout.isatty(),
            color_system=None if os.environ.get("NO_COLOR") else "auto",
            highlight=False,
        )
        self._keep_widths(console.width)
        with console.capture() as captured:
            console.print(self._table)
        margin = " " * self._indent
        below = iter(self._below)
        for line in captured.get().splitlines():
            if line.strip() == _BELOW:
                folded = next(below).wrap(console, max(1, console.width - _BELOW_INDENT))
                yield from (f"{margin}{' ' * _BELOW_INDENT}{part.plain.rstrip()}" for part in folded)
            else:
                yield f"{margin}{line}".rstrip()

    def show(self) -> None:
        """Print the table."""
        click.echo("\n".join(self.lines(output_width())))

    def _keep_widths(self, width: int) -> None:
        """Let the second space between columns give way, then the wide columns, as long as each has room for a few characters.

        Else all columns give way.
        """
        values, gaps = sum(self._widths), len(self._widths) - 1
        if values + gaps <= width < values + 2 * gaps:
            self._table.padding = (0, 1, 0, 0)
            return
        pairs = list(zip(self._headings, self._widths, strict=True))
        least = sum(min(own, _FEW) if heading in self._wide else own for heading, own in pairs) + 2 * (len(pairs) - 1)
        for column, heading in zip(self._table.columns, self._headings, strict=True):
            column.no_wrap = bool(self._wide) and least <= width and heading not in self._wide

    def _text(self, text: str, style: str = "") -> Text:
        return Text(printable(text), style, no_wrap=self._overflow == "ellipsis", overflow=self._overflow)


def facts(values: Mapping[str, Cell], indent: int = 0) -> Table:
    """Return a table without header, of names and their values."""
    table = Table("", "", indent=indent)
    for name, value in values.items():
        table.add(name, value)
    return table


def output_width(*, err: bool = False) -> int:
    """Return the columns that a table may have on standard output or error: 80 at most on a terminal, any number in a pipe."""
    return min(_WIDTH, get_terminal_size().columns) if (sys.stderr if err else sys.stdout).isatty() else _PIPE
