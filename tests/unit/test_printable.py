"""Control characters never reach a terminal or the log as they are."""

import re
import sys
from collections.abc import Iterator

import click
import pytest
import structlog
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.client.servers.process import log, redaction
from cluster_serving.client.servers.process.command import Command
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.client.servers.process.printable import printable, printable_lines

HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202eabc\u2066 \r\x00"
SHOWN = r"\x1b[2J\x1b]0;title\x07 \x9b31m \u202eabc\u2066 \r\x00"


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> Iterator[structlog.stdlib.BoundLogger]:
    """A logger that prints as a worker's does."""
    monkeypatch.setattr(redaction, "_secrets", {})
    monkeypatch.setattr(redaction, "_pattern", None)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    log.configure("worker-0", "info")
    yield structlog.get_logger("test")
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_the_level_can_change_later(logger: structlog.stdlib.BoundLogger, capsys: pytest.CaptureFixture[str]) -> None:
    for level, told in (("warning", []), ("info", ["event=shown"])):
        log.set_level(level)
        logger.info("shown")
        assert re.findall("event=shown", capsys.readouterr().out) == told


def test_escapes_are_shown() -> None:
    assert printable(HOSTILE) == SHOWN
    assert printable("\N{HIRAGANA LETTER A} caf\N{LATIN SMALL LETTER E WITH ACUTE}") == "あ café"


@given(st.text())
def test_nothing_is_left_to_obey(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable_lines(text).split("\n"))
    assert printable_lines(text).count("\n") == text.count("\n")


def test_a_line_of_the_log(logger: structlog.stdlib.BoundLogger, capsys: pytest.CaptureFixture[str]) -> None:
    logger.warning("dead letter", uri=HOSTILE, reason=ValueError(HOSTILE), worker=3)

    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable()
    shown = SHOWN.replace("\\", "\\\\")  # as logfmt writes a text with spaces
    assert line.endswith(f'event="dead letter" uri="{shown}" reason="{shown}" worker=3')


def test_a_line_on_a_terminal(
    logger: structlog.stdlib.BoundLogger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log.configure("worker-0", "info")

    structlog.get_logger("test").warning("dead letter", uri=HOSTILE)

    (line,) = capsys.readouterr().out.splitlines()
    assert re.sub(r"\x1b\[\d+m", "", line).isprintable()  # without the renderer's own colours
    assert "title" in line


def test_an_escaped_secret_is_hidden(logger: structlog.stdlib.BoundLogger, capsys: pytest.CaptureFixture[str]) -> None:
    redaction.hide("two \x1bwords")

    logger.info("got two \x1bwords")

    assert capsys.readouterr().out.endswith('got ***"\n')


def test_an_uncaught_exception(logger: structlog.stdlib.BoundLogger, capsys: pytest.CaptureFixture[str]) -> None:
    del logger
    sys.excepthook(ValueError, ValueError(HOSTILE), None)

    assert capsys.readouterr().err == f"ValueError: {SHOWN}\n"


def test_the_fault_of_a_command() -> None:
    @click.command(cls=Command)
    def command() -> None:
        raise Fault(f"job {HOSTILE}\nhas none")

    result = CliRunner().invoke(command)

    assert result.stderr == f"job {SHOWN}\nhas none\n"
