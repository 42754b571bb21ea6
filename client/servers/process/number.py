"""Type of an option that is a number: within bounds, neither NaN nor infinity."""

import math
from typing import Any

import click

_MOST = 1_000_000  # in seconds 11 days: timers of the kernel end at 24 days


class Number(click.FloatRange):
    """Number within bounds. NaN is refused, which the comparisons with the bounds of click let pass.

    Args:
        least: lower bound.
        most: upper bound. None: a million, which the help does not tell.
        above: the lower bound itself is too small.
    """

    def __init__(self, least: float, most: float | None = None, *, above: bool = False) -> None:
        super().__init__(least, most, min_open=above)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number.

        Raises:
            BadParameter: the value is no number, or out of the bounds.
        """
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        if number > _MOST:
            self.fail(f"{value} is more than {_MOST:,}.", param, ctx)
        return number


POSITIVE = Number(0, above=True)
