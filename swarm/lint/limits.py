"""Checks that a service has limits."""

import re
from collections.abc import Iterator

from cluster_serving.swarm.lint.finding import Finding, Part


def findings(part: Part) -> Iterator[Finding]:
    """Yield findings about the memory and the cores that a service may take."""
    limits = part.of_deploy("resources", "limits") or {}
    if not limits.get("memory"):
        yield part.error(
            "has no memory limit: it may take what its machine's other services need",
            "set deploy.resources.limits.memory",
        )
    if not limits.get("cpus"):
        yield part.warning("has no limit of cores", "set deploy.resources.limits.cpus; a node uses as many as it may")
    elif not re.fullmatch(r"\d+(\.\d+)?|\.\d+", str(limits["cpus"])):
        yield part.error(
            f"has {limits['cpus']} as its limit of cores, which is no number", "write one, such as 2 or 0.5"
        )
