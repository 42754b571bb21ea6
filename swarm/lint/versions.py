"""Checks that the services of a stack are of one release."""

from collections.abc import Iterator
from typing import Any

from cluster_serving.swarm.lint.finding import Finding, parts_of


def findings(document: dict[str, Any]) -> Iterator[Finding]:
    """Yield a finding when nodes and frontends have images of different versions."""
    tags = {  # of registry:port/name:tag@digest
        part.name: str(part.spec.get("image", "")).rpartition("/")[2].partition("@")[0].partition(":")[2]
        for part in parts_of(document)
        if part.role in ("node", "frontend")
    }
    if len({tag for tag in tags.values() if tag not in ("", "latest")}) > 1:
        listed = ", ".join(f"{name} {tag or 'without one'}" for name, tag in tags.items())
        yield Finding(
            "warning", "", f"the images have different versions: {listed}", "give all services images of one version"
        )
