"""Report of an examination: its findings, their summary, and the JSON document."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from cluster_serving import __version__
from cluster_serving.client.servers.checks import Finding, worst
from cluster_serving.client.servers.process.exit_codes import ExitCode

DOCUMENT = 1
"""Version of the JSON document. A field that goes or changes its meaning makes a new version."""

COULD_NOT_LOOK = ExitCode.USAGE


class Report(NamedTuple):
    """Findings of an examination, and a headline for each group that was looked at."""

    findings: Sequence[Finding]
    headlines: dict[str, str]

    @property
    def problems(self) -> list[Finding]:
        """Warnings and failures that are not muted, failures first."""
        found = [each for each in self.findings if each.is_problem and not each.muted]
        return sorted(found, key=lambda each: each.status)

    def count(self, status: str) -> int:
        """Return the number of findings of a status, without muted findings."""
        return sum(each.status == status and not each.muted for each in self.findings)

    @property
    def muted(self) -> int:
        """Number of muted findings."""
        return sum(each.muted for each in self.findings)

    def exit_code(self, strict: bool) -> ExitCode:
        """Return the exit code of the command. `strict`: warnings count as failures."""
        bad = ("fail", "warn") if strict else ("fail",)
        return ExitCode.FAILED if worst(self.findings) in bad else ExitCode.OK

    def closing(self) -> str:
        """Return the sentence at the end."""
        warnings, failures = self.count("warn"), self.count("fail")
        muted = f" ({self.muted} muted)" if self.muted else ""
        if failures:
            first = self.problems[0].code
            also = f" and {_counted(warnings, 'warning')}" if warnings else ""
            return f"Not good to go: {_counted(failures, 'failure')}{also}{muted}; begin with {first}."
        but = f", with {_counted(warnings, 'warning')}" if warnings else ""
        return f"Good to go{but}{muted}."

    def document(self, strict: bool) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "version": DOCUMENT,
            "release": __version__,
            "ok": self.exit_code(strict) is ExitCode.OK,
            "summary": {
                **{status: self.count(status) for status in ("ok", "warn", "fail", "skip")},
                "muted": self.muted,
            },
            "checks": [
                {
                    "code": each.code,
                    "group": each.group,
                    "status": each.status,
                    "muted": each.muted,
                    "subject": each.subject,
                    "evidence": each.verdict.evidence,
                    "message": each.verdict.message,
                    "fix": each.verdict.fix or None,
                    "command": each.verdict.command or None,
                }
                for each in self.findings
            ],
        }


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def failed_document(error: str) -> dict[str, Any]:
    """Return the JSON document of an examination that could not be made."""
    summary = dict.fromkeys(("ok", "warn", "fail", "skip", "muted"), 0)
    return {"version": DOCUMENT, "release": __version__, "ok": False, "summary": summary, "checks": [], "error": error}
