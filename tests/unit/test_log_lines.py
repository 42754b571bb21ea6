"""Lines of a log by time, level and process."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from cluster_serving.node.commands.log_lines import LogFilter, as_json, parse_since

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
LOG = """\
begun before
timestamp=2026-11-25T11:00:00.5Z level=info process=supervisor event=started
timestamp=2026-11-25T11:30:00Z level=debug process=reader event=read
timestamp=2026-11-25T11:58:00Z level=error process=worker-1 event="it failed"
Traceback (most recent call last):
timestamp=2026-11-25T11:59:00Z level=warning process=worker-10 event=slow
""".splitlines()


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (LogFilter(), [0, 1, 2, 3, 4, 5]),
        (LogFilter(level="warning"), [3, 4, 5]),
        (LogFilter(process="worker"), [3, 4, 5]),
        (LogFilter(process="worker-1"), [3, 4]),
        (LogFilter(since=NOW - timedelta(minutes=30)), [2, 3, 4, 5]),
        (LogFilter(since=NOW - timedelta(minutes=3), level="error"), [3, 4]),
        (LogFilter(process="w"), []),
    ],
)
def test_lines_that_are_wanted(wanted: LogFilter, lines: list[int]) -> None:
    assert [number for number, line in enumerate(LOG) if wanted.takes(line)] == lines


@pytest.mark.parametrize(
    ("process", "level", "known"),
    [("worker", "debug", True), ("reader", "error", True), ("workers", "debug", False), ("", "error", True)],
)
def test_a_process_without_any_line(process: str, level: str, known: bool) -> None:
    wanted = LogFilter(process=process, level=level)
    assert wanted.has_process, "nothing is known yet"

    for line in LOG:
        wanted.takes(line)

    assert wanted.has_process is known
    assert wanted.seen == {"supervisor", "reader", "worker-1", "worker-10"}


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("90s", NOW - timedelta(seconds=90)),
        ("10m", NOW - timedelta(minutes=10)),
        ("7d", NOW - timedelta(days=7)),
        ("999999d", datetime.min.replace(tzinfo=UTC)),
        ("2026-11-25T11:00Z", NOW - timedelta(hours=1)),
        ("2026-11-25T12:00+01:00", NOW - timedelta(hours=1)),
    ],
)
def test_an_instant(text: str, instant: datetime) -> None:
    assert parse_since(text, NOW) == instant


@pytest.mark.parametrize("text", ["", "soon", "10", "10 parsecs", "-5m"])
def test_no_instant(text: str) -> None:
    with pytest.raises(ValueError, match="isoformat"):
        parse_since(text, NOW)


def test_a_line_as_json() -> None:
    line = r'timestamp=2026-11-25T11:58:00Z level=error process=worker-1 event="it \"failed\"" rows=3 why= text="a\nb"'

    assert json.loads(as_json(line)) == {
        "timestamp": "2026-11-25T11:58:00Z",
        "level": "error",
        "process": "worker-1",
        "event": 'it "failed"',
        "rows": "3",
        "why": "",
        "text": "a\nb",
    }
    assert json.loads(as_json("Traceback\n")) == {"text": "Traceback"}
