"""Muted findings of this machine: kept until a time, or until a finding gets worse.

<home>/.doctor.json     code to {until_ms, findings: subject to {status, amount}}, as the findings were when they were muted
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cluster_serving.client.servers.checks import WORST, Finding, Status
from cluster_serving.client.servers.process.whole_file import whole_file

_WORSE = 1.5  # times the amount at the time of the mute: measured amounts go up and down


class _Kept(msgspec.Struct, frozen=True):
    """Muted finding."""

    status: Status
    amount: float


class Mute(msgspec.Struct, frozen=True):
    """Muted code. `until_ms`: end as Unix time in ms, None for ever. `findings`: muted findings by subject."""

    until_ms: int | None
    findings: dict[str, _Kept]

    def covers(self, finding: Finding, now_ms: int) -> bool:
        """Return whether a finding is no worse than it was when its code was muted, and the time is not over."""
        kept = self.findings.get(finding.subject)
        if kept is None or (self.until_ms is not None and now_ms >= self.until_ms):
            return False
        worse = WORST.index(finding.status) > WORST.index(kept.status)
        return not worse and finding.verdict.amount <= _WORSE * kept.amount


class Mutes:
    """File of the muted codes. `home`: directory of all jobs."""

    def __init__(self, home: Path) -> None:
        self._file = home / ".doctor.json"

    def read(self) -> dict[str, Mute]:
        """Return the muted codes. Empty: there is no file that this version can read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=dict[str, Mute])
        except (OSError, msgspec.DecodeError):
            return {}

    def apply(self, findings: Sequence[Finding], now_ms: int | None = None) -> list[Finding]:
        """Return the findings with their mutes. A mute that has ended, or whose finding got worse, is removed from the file."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        mutes = self.read()
        problems = [each for each in findings if each.is_problem and each.code in mutes]
        ended = {each.code for each in problems if not mutes[each.code].covers(each, now_ms)}
        if ended:
            self._write({code: mute for code, mute in mutes.items() if code not in ended})
        return [each._replace(muted=each.is_problem and each.code in mutes.keys() - ended) for each in findings]

    def mute(self, code: str, findings: Sequence[Finding], seconds: float | None) -> None:
        """Mute a code as far as the findings show it. `seconds`: None for ever."""
        until_ms = None if seconds is None else round((time.time() + seconds) * 1000)
        kept = {each.subject: _Kept(each.status, each.verdict.amount) for each in findings if each.code == code}
        self._write(self.read() | {code: Mute(until_ms, kept)})

    def unmute(self, code: str) -> bool:
        """End the mute of a code, and return whether the code was muted."""
        mutes = self.read()
        if mutes.pop(code, None) is None:
            return False
        self._write(mutes)
        return True

    def _write(self, mutes: dict[str, Mute]) -> None:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole_file(self._file) as stream:
            stream.write(msgspec.json.format(msgspec.json.encode(mutes)))
