"""Signals that end a command."""

import signal

import pytest

from cluster_serving.client.servers.process.signals import Signals

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_signal_ends_the_block_and_a_second_does_not_cut_the_clean_up_short(
    number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    before, done = [signal.getsignal(each) for each in NUMBERS], []

    def block() -> None:
        try:
            signal.raise_signal(number)
            done.append("the rest of the block")
        finally:
            signal.raise_signal(number)
            done.append("the clean-up")

    with pytest.raises(SystemExit) as ended, Signals().heard("Interrupted."):
        block()

    assert ended.value.code == 128 + number
    assert done == ["the clean-up"]
    assert capsys.readouterr().err == "Interrupted.\n"
    assert [signal.getsignal(each) for each in NUMBERS] == before


def test_a_signal_waits_until_it_is_asked_for() -> None:
    signals, done = Signals(), []

    def block() -> None:
        signals.check()
        signal.raise_signal(signal.SIGTERM)
        done.append("the rest of a measurement")
        signals.check()
        done.append("the next measurement")

    with pytest.raises(SystemExit), signals.heard("Interrupted."), signals.waiting():
        block()

    assert done == ["the rest of a measurement"]


def test_a_closed_terminal_does_not_end_what_nohup_began() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals().heard("Interrupted."):
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
