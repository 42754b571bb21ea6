"""Findings as text for the terminal."""

import textwrap
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

from cluster_serving.swarm.lint.finding import Finding

_WIDEST = 100


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield two wrapped paragraphs per finding: the fault, then the indented remedy."""
    width = min(get_terminal_size().columns, _WIDEST)
    for finding in findings:
        sentence = (
            f"{finding.level}: {finding.service} {finding.what}"
            if finding.service
            else f"{finding.level}: {finding.what}"
        )
        yield textwrap.fill(sentence, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
        yield textwrap.fill(
            finding.mend,
            width,
            initial_indent="  -> ",
            subsequent_indent="     ",
            break_on_hyphens=False,
            break_long_words=False,
        )


def count(findings: Sequence[Finding]) -> str:
    """Return the numbers of errors and warnings as a sentence."""
    errors = sum(finding.level == "error" for finding in findings)
    warnings = len(findings) - errors
    if not findings:
        return "Nothing is wrong."
    return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}."
