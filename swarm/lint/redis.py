"""Checks that Redis keeps the records that it has accepted."""

import re
from collections.abc import Iterator

from cluster_serving.swarm.lint.finding import Finding, Part
from cluster_serving.swarm.lint.quantities import docker_bytes, redis_bytes
from cluster_serving.swarm.stack import text_of

_MOST_OF_LIMIT = 0.75  # the rest is for pages copied by a rewrite of the append-only file, and for client buffers


def findings(part: Part) -> Iterator[Finding]:
    """Yield findings about a Redis service."""
    if part.role != "redis":
        return
    text = "\n".join([part.words, *(text_of(file) for file in part.files().values() if file.is_file())])
    policy = setting(text, "maxmemory-policy")
    if policy is None:
        yield part.warning("leaves open what it does when its memory is full", "set maxmemory-policy noeviction")
    elif policy != "noeviction":
        yield part.error(f"throws records away when its memory is full ({policy})", "set maxmemory-policy noeviction")
    if setting(text, "appendonly") != "yes":
        yield part.error("loses accepted records when it ends", "set appendonly yes")
    directory = setting(text, "dir") or "/data"
    volumes = [volume for volume in part.spec.get("volumes") or () if isinstance(volume, dict)]
    if not any(one.get("target") == directory and one.get("type") in {"volume", "bind"} for one in volumes):
        yield part.error(f"keeps its data in the container alone, at {directory}", f"mount a volume at {directory}")
    limit = docker_bytes(str(part.of_deploy("resources", "limits", "memory") or ""))
    maxmemory = redis_bytes(setting(text, "maxmemory") or "")
    if not maxmemory:
        yield part.error(
            "is killed when its memory is full, instead of saying so", "set maxmemory below its memory limit"
        )
    elif limit and maxmemory > _MOST_OF_LIMIT * limit:
        yield part.error(
            f"may fill {maxmemory / limit:.0%} of its memory limit with records, and is killed when it needs more beside them",
            f"set maxmemory to {_MOST_OF_LIMIT:.0%} of the limit at most; half is safe",
        )
    if part.of_deploy("mode") == "global" or (part.of_deploy("replicas") or 1) > 1:
        yield part.error("has several tasks, each with a queue of its own", "set deploy.replicas: 1")
    if part.of_deploy("update_config", "order") == "start-first":
        yield part.error(
            "has two tasks write one append-only file when it is updated", "set deploy.update_config.order: stop-first"
        )
    if not part.of_deploy("placement", "constraints"):
        yield part.warning(
            "may move to a machine that does not have its volume",
            "pin it to a machine: deploy.placement.constraints, by a label",
        )
    if not re.search(r"requirepass|^\s*user\s|aclfile", text, re.MULTILINE):
        yield part.error("lets everybody in", "give it a password from a secret, as swarm/stack.yml does")


def setting(text: str, name: str) -> str | None:
    """Return the last value of a setting in a command line (--name value) or a redis.conf (name value)."""
    found = re.findall(rf"(?:^|\s)(?:--)?{re.escape(name)}[\s=]+\"?([^\s\"]+)", text, re.MULTILINE)
    return str(found[-1]) if found else None
