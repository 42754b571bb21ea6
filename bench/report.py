"""Tables and files of figures, as every measurement prints and writes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from cluster_serving.node.load.machine import machine

Figures = dict[str, float]


def first_line(text: str | None) -> str:
    """Return the first line of a program's docstring, the purpose of the program; empty without a docstring."""
    return (text or "").partition("\n")[0]


def medians(rounds: Sequence[Mapping[str, float]]) -> Figures:
    """The median of each figure over the rounds."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def show(title: str, rounds: Sequence[Mapping[str, float]]) -> None:
    """Print the median of each figure, and its least and greatest."""
    table = Table(title=title, caption=f"{len(rounds)} rounds; {machine()}", title_justify="left")
    table.add_column("figure", overflow="fold")
    for heading in ("median", "least", "greatest"):
        table.add_column(heading, justify="right")
    for name, middle in medians(rounds).items():
        values = [figures[name] for figures in rounds]
        table.add_row(name, *(number(value) for value in (middle, min(values), max(values))))
    Console().print(table)


def show_once(title: str, figures: Mapping[str, float], told: str) -> None:
    """Print the figures of a measurement without rounds; a `growth` is a share. `told`: what was measured, before the machine."""
    table = Table("figure", "value", title=title, caption=f"{told}; {machine()}", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:+.1%}" if name.endswith("growth") else number(value))
    Console().print(table)


def write(path: Path | None, rounds: Sequence[Mapping[str, float]], **told: object) -> None:
    """Write the figures of each round, their medians, the machine and what else is `told`, as one JSON object."""
    if path is not None:
        found = {"machine": machine(), **told, "medians": medians(rounds), "rounds": rounds}
        path.write_text(json.dumps(found, indent=2) + "\n")


def read(path: Path) -> list[Figures]:
    """The rounds of a file that `write` wrote, or one of the medians in an older file, a flat object.

    Raises:
        ValueError: it is neither, or cannot be read; the message names it.
    """
    try:
        found = json.loads(path.read_text())
        rounds = found.get("rounds", [found])
        figures = [{name: float(value) for name, value in each.items() if _is_number(value)} for each in rounds]
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path} holds no figures of a bench: {error}") from error
    if not figures or not figures[0]:
        raise ValueError(f"{path} holds no figures of a bench")
    return figures


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: float) -> str:
    """Three digits of it, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
