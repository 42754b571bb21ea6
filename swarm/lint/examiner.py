"""Checks of a stack for `doctor`: the rules of `swarm check`, on the files of a stack or on the stack that runs."""

from collections.abc import Iterator
from typing import Any

from cluster_serving.client.servers.checks import Case, Checks, Finding, Verdict
from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.swarm.docker import DockerMissing
from cluster_serving.swarm.lint import exposure, finding, limits, redis, resilience, settings, versions
from cluster_serving.swarm.live import DEFAULT_STACK, STACK_VARIABLE, Stack, find_stack
from cluster_serving.swarm.stack import Document, Source, render, stack_files

STACK = Checks[Document]("Stack")

_CHECK = "cluster-serving swarm check"
_SHOWN = 3


@STACK("CS-STACK-LIMITS")
def without_limits(document: Document) -> Verdict:
    """Judge the limits of memory and cores."""
    return _verdict(_of_parts(document, limits), "every service has limits")


@STACK("CS-STACK-EXPOSED")
def exposed(document: Document) -> Verdict:
    """Judge secrets that can be read, and open ports."""
    return _verdict(
        [*_of_parts(document, exposure), *exposure.of_secrets(document)], "no secret in clear, no needless port"
    )


@STACK("CS-STACK-VERSIONS")
def different_versions(document: Document) -> Verdict:
    """Judge whether the images are of one version."""
    return _verdict(versions.findings(document), "images of one version")


@STACK("CS-STACK-REDIS")
def careless_redis(document: Document) -> Verdict:
    """Judge whether Redis keeps the accepted records. The settings of a running Redis are judged by the group Redis."""
    return _verdict(_of_parts(document, redis) if "configs" in document else (), "Redis keeps accepted records")


@STACK("CS-STACK-SETTINGS")
def wrong_settings(document: Document) -> Verdict:
    """Judge the settings of nodes and frontends."""
    return _verdict(_of_parts(document, settings) if "configs" in document else (), "settings can be read")


@STACK("CS-STACK-RESILIENCE")
def not_resilient(document: Document) -> Verdict:
    """Judge health checks, roll-back and time to drain."""
    return _verdict(_of_parts(document, resilience) if "configs" in document else (), "services survive updates")


class StackExaminer:
    """Examiner of the files of a stack, or of the stack that runs."""

    codes = STACK.codes

    def examine(self, case: Case) -> list[Finding]:
        """Return the findings about a stack. Without files and without a running stack, the checks are skipped."""
        name = case.environ.get(STACK_VARIABLE) or DEFAULT_STACK
        subject = f"stack {name}"
        try:
            if case.stack_files:
                files = stack_files(tuple(map(str, case.stack_files)), ())
                return STACK.run(render(Source(name, files, files[0].parent)), subject)
            running = find_stack(name)
        except DockerMissing as fault:
            if case.stack_files:
                raise
            return STACK.skip(subject, str(fault))
        except Fault as fault:
            return STACK.skip(subject, str(fault))
        if running is None:
            return STACK.skip(subject, f"no stack {name} runs; {STACK_VARIABLE} names another one")
        return STACK.run(as_document(running), subject)


EXAMINER = StackExaminer()


def as_document(stack: Stack) -> Document:
    """Return a running stack in the form of its files, as far as the manager tells: image, limits, variables, command."""
    services: dict[str, Any] = {}
    for name, service in stack.services.items():
        given = (service.spec.task_template.get("Resources") or {}).get("Limits") or {}
        cores, memory = given.get("NanoCPUs"), given.get("MemoryBytes")
        limited = ({"cpus": str(cores / 1e9)} if cores else {}) | ({"memory": str(memory)} if memory else {})
        services[name] = {
            "image": str(service.container.get("Image", "")).partition("@")[0],
            "environment": service.environ,
            "command": [*(service.container.get("Command") or ()), *(service.container.get("Args") or ())],
            "ports": [{"published": port.get("PublishedPort")} for port in service.endpoint.get("Ports") or ()],
            "deploy": {"resources": {"limits": limited}},
        }
    return {"services": services}


def _of_parts(document: Document, rules: Any) -> list[finding.Finding]:
    return [found for part in finding.parts_of(document) for found in rules.findings(part)]


def _verdict(found: "Iterator[finding.Finding] | list[finding.Finding] | tuple[()]", passed: str) -> Verdict:
    """Return findings of `swarm check` as one verdict: the worst level, and each sentence."""
    each = list(found)
    if not each:
        return Verdict("ok", passed)
    texts = [f"{one.service} {one.what}".strip() for one in each]
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return Verdict(
        "fail" if any(one.level == "error" for one in each) else "warn",
        "; ".join(texts[:_SHOWN]) + more,
        each[0].mend,
        _CHECK,
        len(each),
        {"findings": [{"service": one.service, "what": one.what, "mend": one.mend} for one in each]},
    )
