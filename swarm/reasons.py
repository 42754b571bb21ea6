"""Causes of a task's end: Docker's message, and its meaning here."""

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
    """Return Docker's message about a failed task, with an explanation or a remedy for known failures."""
    said = task.status.err or task.status.message
    meaning = next((hint for words, hint in _HINTS if words in said.lower()), "")
    exited = re.search(r"non-zero exit \((\d+)\)", said)
    if exited and not meaning:
        code = int(exited[1])
        if code == _KILLED:
            meaning = "killed; out of memory?"
        elif code in set(ExitCode) and code > ExitCode.USAGE:  # any program may exit with 1 or 2
            meaning = MEANINGS[ExitCode(code)]
    return f"{said} ({meaning})" if meaning else said
