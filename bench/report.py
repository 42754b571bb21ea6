"""What every measurement prints and writes."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

Figures = dict[str, float]


def first_line(text: str | None) -> str:
    """What a program is for, from its docstring."""
    return (text or "").partition("\n")[0]


def machine() -> str:
    """One line on where this was measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}, Linux {platform.release()}"


def medians(rounds: Sequence[Mapping[str, float]]) -> Figures:
    """The median of each figure over the rounds."""
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


def show(title: str, rounds: Sequence[Mapping[str, float]]) -> None:
    """Print the median of each figure, and its least and greatest."""
    table = Table(title=title, caption=f"{len(rounds)} rounds; {machine()}", title_justify="left")
    table.add_column("figure")
    for heading in ("median", "least", "greatest"):
        table.add_column(heading, justify="right")
    for name, middle in medians(rounds).items():
        values = [figures[name] for figures in rounds]
        table.add_row(name, *(_number(value) for value in (middle, min(values), max(values))))
    Console().print(table)


def show_once(title: str, figures: Mapping[str, float], told: str) -> None:
    """Print the figures of a measurement without rounds; a `growth` is a share. `told`: what was measured, before the machine."""
    table = Table("figure", "value", title=title, caption=f"{told}; {machine()}", title_justify="left")
    for name, value in figures.items():
        table.add_row(name, f"{value:+.1%}" if name.endswith("growth") else _number(value))
    Console().print(table)


def write(path: Path | None, rounds: Sequence[Mapping[str, float]]) -> None:
    """Write the medians as one flat JSON object."""
    if path is not None:
        path.write_text(json.dumps(medians(rounds), indent=2) + "\n")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
