"""Lines of a node's log: time, level and process of each, and which of them are wanted."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

LEVELS = ("debug", "info", "warning", "error", "critical")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_HEAD = re.compile(r"timestamp=(\S+) level=(\w+) process=(\S+)")
_FIELD = re.compile(r'([^\s="]+)=("(?:[^"\\]|\\.)*"|\S*)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n"}


def parse_since(text: str, now: datetime) -> datetime:
    """Return the instant that a text names: `90s`, `10m`, `2h`, `7d` before `now`, or a time of ISO 8601.

    A time without a zone is in the zone of this machine.

    Raises:
        ValueError: the text is neither.
    """
    if span := re.fullmatch(r"(\d{1,9})([smhd])", text.strip()):
        with suppress(OverflowError):  # before the first year
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        return datetime.min.replace(tzinfo=UTC)
    return datetime.fromisoformat(text.strip()).astimezone(UTC)


@dataclass
class LogFilter:
    """Lines that are wanted. A line without a head, as those of a traceback, goes with the line before.

    Attributes:
        since: instant of the first wanted line. None: all.
        level: lowest wanted level.
        process: wanted process, `reader`, or `worker` for all workers. Empty: all.
        seen: names of the processes of all lines so far.
    """

    since: datetime | None = None
    level: str = LEVELS[0]
    process: str = ""
    seen: set[str] = field(init=False, default_factory=set[str])
    _taken: bool = field(init=False)

    def __post_init__(self) -> None:
        self._taken = self.since is None and self.level == LEVELS[0] and not self.process

    def takes(self, line: str) -> bool:
        """Return whether a line is wanted. The lines are given in their order."""
        if head := _HEAD.match(line):
            self._taken = self._wants(*head.groups())
        return self._taken

    @property
    def has_process(self) -> bool:
        """False if the lines so far are all of other processes than the wanted one."""
        return not self.seen or any(map(self._is_of, self.seen))

    def _is_of(self, process: str) -> bool:
        return not self.process or re.fullmatch(rf"{re.escape(self.process)}(-\d+)*", process) is not None

    def _wants(self, timestamp: str, level: str, process: str) -> bool:
        self.seen.add(process)
        if level in LEVELS and LEVELS.index(level) < LEVELS.index(self.level):
            return False
        if not self._is_of(process):
            return False
        try:
            return self.since is None or datetime.fromisoformat(timestamp) >= self.since
        except ValueError:
            return True


def as_json(line: str) -> str:
    """Return a line of the log as a line with a JSON object of its fields. A line without a head is `{"text": line}`."""
    fields: dict[str, str] = {}
    for name, written in _FIELD.findall(line) if _HEAD.match(line) else ():
        is_quoted = written[:1] == '"'
        fields[name] = _ESCAPE.sub(lambda pair: _ESCAPED.get(pair[1], pair[1]), written[1:-1]) if is_quoted else written
    return json.dumps(fields or {"text": line.rstrip("\n")}) + "\n"
