"""Why a task ended, in words: docker's own, and what they mean here."""

import re

from cluster_serving.client.servers.process.exit_codes import MEANINGS, ExitCode
from cluster_serving.swarm.live import Task

_KILLED = 128 + 9
_HINTS = (
    ("bind source path does not exist", "that directory has to be on every machine that may run this"),
    ("no such image", "load the image on every machine, or push it to a registry that they reach"),
    ("range of cpus is from", "this machine has fewer cores than the limit: --cpus"),
)


def explained(task: Task) -> str:
    """What docker says of a failed task, and how to mend it where that is known."""
    said = task.status.err or task.status.message
    return f"{said} ({meaning})" if (meaning := _meaning(said)) else said


def _meaning(said: str) -> str:
    for words, hint in _HINTS:
        if words in said.lower():
            return hint
    found = re.search(r"non-zero exit \((\d+)\)", said)
    if not found:
        return ""
    code = int(found[1])
    if code == _KILLED:
        return "killed; out of memory?"
    # 1 and 2 are said by everything.
    return MEANINGS[ExitCode(code)] if code in set(ExitCode) and code > ExitCode.USAGE else ""
