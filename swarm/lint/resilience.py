"""Checks that a service survives its cluster: health check, roll-back, time to drain and pinned images."""

from collections.abc import Iterator

from cluster_serving.swarm.lint.finding import Finding, Part
from cluster_serving.swarm.lint.quantities import seconds
from cluster_serving.swarm.lint.settings import drain_s

_DOCKER_GRACE = "10s"  # Docker's default for stop_grace_period


def findings(part: Part) -> Iterator[Finding]:
    """Yield findings about the resilience of a service."""
    health = part.spec.get("healthcheck")
    if health is None:
        yield part.warning(
            "has no healthcheck of its own",
            "write healthcheck: with a test, or with an interval alone for the test of its image",
        )
    elif health.get("disable") or health.get("test") in (["NONE"], "NONE"):
        yield part.error(
            "has its healthcheck switched off: Swarm takes it for ready as soon as it starts", "remove disable: true"
        )
    update = part.of_deploy("update_config") or {}
    if update.get("failure_action") != "rollback":
        yield part.warning(
            "is not rolled back when an update fails", "set deploy.update_config.failure_action: rollback"
        )
    host_ports = any(isinstance(port, dict) and port.get("mode") == "host" for port in part.spec.get("ports") or ())
    # A host port is held by one task at a time, so start-first is impossible.
    if part.role in {"node", "frontend"} and update.get("order") != "start-first" and not host_ports:
        yield part.warning(
            "stops a task before it starts the next when it is updated", "set deploy.update_config.order: start-first"
        )
    needed_s = drain_s(part)
    written = str(part.spec.get("stop_grace_period") or _DOCKER_GRACE)
    if needed_s is not None and seconds(written) <= needed_s:
        yield part.error(
            f"is killed {written} after it was told to stop, but may use {needed_s:g} s to finish (drainTimeout)",
            f"set stop_grace_period above {needed_s:g}s, or drainTimeout lower",
        )
    image = str(part.spec.get("image", ""))
    tag = image.rpartition("/")[2].partition(":")[2]
    if "@" not in image and tag in {"", "latest"}:
        yield part.warning(
            f"runs {image}, which may be another image on each machine and tomorrow", "name a version, or a digest"
        )
