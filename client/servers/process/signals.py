"""Signals that end a command: the command first ends and removes what it has made."""

import signal
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

import click


class Signals:
    """Handler of SIGINT, SIGTERM and SIGHUP.

    The first signal ends the block by a KeyboardInterrupt. Within `waiting`, the signal waits for `check`. A second signal does not
    cut the clean-up short.
    """

    def __init__(self) -> None:
        self._number = 0
        self._waits = False

    def check(self) -> None:
        """End the block when a signal waits.

        Raises:
            KeyboardInterrupt: a signal waits.
        """
        if self._number:
            raise KeyboardInterrupt

    @contextmanager
    def heard(self, told: str) -> Generator[None]:
        """Handle the signals for a block.

        Args:
            told: sentence to print on standard error when a signal has ended the block.

        Raises:
            SystemExit: a signal has ended the block.
        """
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        except KeyboardInterrupt:
            click.echo(told, err=True)
            raise SystemExit(128 + self._number) from None  # the exit code that shells report for a signal
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Leave a signal to `check` for a block."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        first, self._number = not self._number, self._number or number
        if first and not self._waits:
            raise KeyboardInterrupt
