"""Checks of the nodes that serve a job."""

from cluster_serving.client.servers.checks import Checks, Status, Verdict
from cluster_serving.client.servers.picture import JobPicture, limit
from cluster_serving.node.doctor.job_facts import JobFacts

JOB = Checks[JobFacts]("Job")

# Limits at which workers have no work although records could come.
_STARVING = ("memory", "quota", "payload", "redis", "reader", "writer", "one-worker", "lock-step", "machine")


@JOB("CS-JOB-SILENT")
def silent(facts: JobFacts) -> Verdict:
    """Judge whether the running node tells its state."""
    if not facts.running:
        return Verdict("ok", "the job does not run on this machine")
    if facts.own is None:
        return Verdict(
            "fail",
            "the job runs, and its node has left no sign of life in Redis: it starts, hangs, or has another Redis",
            "look at its log",
            f"cluster-serving logs {facts.job}",
        )
    return Verdict("ok", f"the node is {facts.own.state}", evidence={"state": facts.own.state})


@JOB("CS-JOB-WORKERS")
def workers(facts: JobFacts) -> Verdict:
    """Judge whether all wanted workers are there."""
    missing = [(beat.node, beat.workers - beat.workers_alive) for beat in facts.beats if not beat.whole]
    evidence = {
        "workers": sum(beat.workers for beat in facts.beats),
        "alive": sum(beat.workers_alive for beat in facts.beats),
    }
    if not missing:
        return Verdict("ok", f"{evidence['alive']} workers are ready", evidence=evidence)
    return Verdict(
        "fail" if not evidence["alive"] else "warn",
        f"{evidence['alive']} of {evidence['workers']} workers are ready; not whole: {', '.join(node for node, _ in missing)}",
        "look for the end of a worker in the log",
        f"cluster-serving logs {facts.job}",
        sum(count for _, count in missing),
        evidence,
    )


@JOB("CS-JOB-STALLED")
def stalled(facts: JobFacts) -> Verdict:
    """Judge whether records are answered."""
    return _by_limit(facts, ("stalled",), "fail", f"cluster-serving logs {facts.job}")


@JOB("CS-JOB-STARVES")
def starves(facts: JobFacts) -> Verdict:
    """Judge whether workers wait for a part that is at its limit."""
    return _by_limit(facts, _STARVING, "warn", f"cluster-serving status {facts.job}")


@JOB("CS-JOB-RESTARTS")
def restarts(facts: JobFacts) -> Verdict:
    """Judge whether processes of the nodes died."""
    count = sum(int(beat.figures.get("restarts", 0)) for beat in facts.beats)
    if not count:
        return Verdict("ok", "no process of the nodes had to be restarted", evidence={"restarts": 0})
    return Verdict(
        "warn",
        f"{count} restarts of processes since the start of the nodes: each costs the load of a model and its records a second try",
        "look for the reason in the log",
        f"cluster-serving logs {facts.job}",
        count,
        {"restarts": count},
    )


@JOB("CS-JOB-DEAD-LETTERS")
def dead_letters(facts: JobFacts) -> Verdict:
    """Judge whether records ended as dead letters."""
    count = max((int(beat.figures.get("dead_letters", 0)) for beat in facts.beats), default=0)
    if not count:
        return Verdict("ok", "no dead letters", evidence={"dead_letters": 0})
    return Verdict(
        "warn",
        f"{count} records could not be processed and are kept as dead letters",
        "look at the reasons, then replay or purge them",
        f"cluster-serving dead-letters list --job {facts.job}",
        count,
        {"dead_letters": count},
    )


@JOB("CS-JOB-RELEASES")
def releases(facts: JobFacts) -> Verdict:
    """Judge whether all nodes are of this release."""
    found = sorted({str(release) for release in facts.others})
    if not found:
        return Verdict("ok", f"{len(facts.beats)} nodes, of this release")
    return Verdict(
        "warn",
        f"{len(facts.others)} nodes are of another release: {', '.join(found)}",
        "finish the upgrade of all nodes",
        f"cluster-serving restart {facts.job}",
        len(facts.others),
        {"releases": found},
    )


def _by_limit(facts: JobFacts, codes: tuple[str, ...], status: Status, command: str) -> Verdict:
    """Return the sentence of `status` about the limit of the job, if the limit is one of the codes."""
    picture = JobPicture.of(facts.beats)
    if picture is None:
        return Verdict("ok", "no node tells its load")
    found = limit(picture)
    evidence = {"limit": found.code, "busy": [round(share, 2) for share in picture.busy], "backlog": picture.backlog}
    if found.code not in codes:
        return Verdict("ok", found.sentence.rstrip("."), evidence=evidence)
    message, _, fix = found.sentence.rstrip(".").partition(": ")
    return Verdict(status, message, fix, command, 1, evidence)
