"""All checks of a stack."""

from typing import Any

from cluster_serving.swarm.lint import exposure, limits, redis, resilience, settings, versions
from cluster_serving.swarm.lint.finding import Finding, parts_of

_RULES = (redis.findings, settings.findings, limits.findings, resilience.findings, exposure.findings)


def check(document: dict[str, Any]) -> list[Finding]:
    """Return the findings for a stack that `docker stack config` has merged, errors first."""
    found = [finding for part in parts_of(document) for rule in _RULES for finding in rule(part)]
    found += exposure.of_secrets(document)
    found += versions.findings(document)
    return sorted(found, key=lambda finding: (finding.level != "error", finding.service))
