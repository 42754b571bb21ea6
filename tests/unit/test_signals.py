"""Signals that end a command."""

import signal
import subprocess
import sys

import pytest

# In a process of its own: a signal that is raised here would be one for the process that runs the tests.
PROGRAM = """
import signal, sys
from cluster_serving.client.servers.process.signals import Signals

number, handled = int(sys.argv[1]), [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
before, signals = [signal.getsignal(each) for each in handled], Signals()
"""


def run(program: str, number: int) -> subprocess.CompletedProcess[str]:
    """Run a program that raises a signal."""
    command = [sys.executable, "-c", PROGRAM + program, str(number)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_block_and_a_second_does_not_cut_the_clean_up_short(number: signal.Signals) -> None:
    ended = run(
        """
try:
    with signals.heard("Interrupted."):
        try:
            signal.raise_signal(number)
            print("the rest of the block")
        finally:
            signal.raise_signal(number)
            print("the clean-up")
finally:
    print("as before:", [signal.getsignal(each) for each in handled] == before)
""",
        number,
    )

    assert (ended.returncode, ended.stderr) == (128 + number, "Interrupted.\n")
    assert ended.stdout == "the clean-up\nas before: True\n"


def test_a_signal_waits_until_it_is_asked_for() -> None:
    ended = run(
        """
with signals.heard("Interrupted."), signals.waiting():
    signals.check()
    signal.raise_signal(number)
    print("the rest of a measurement")
    signals.check()
    print("the next measurement")
""",
        signal.SIGTERM,
    )

    assert (ended.returncode, ended.stderr) == (128 + signal.SIGTERM, "Interrupted.\n")
    assert ended.stdout == "the rest of a measurement\n"


def test_a_closed_terminal_does_not_end_what_nohup_began() -> None:
    ended = run(
        """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with signals.heard("Interrupted."):
    signal.raise_signal(signal.SIGHUP)
    print("the rest of the block")
""",
        signal.SIGHUP,
    )

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "the rest of the block\n"
