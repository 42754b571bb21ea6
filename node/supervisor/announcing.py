"""Announcements of a node about its lanes, to the log and to the command that waits for a start or a change."""

import structlog

from cluster_serving.node.config.choice import Shape, counted
from cluster_serving.node.config.tuned import is_open
from cluster_serving.node.supervisor.change import Report
from cluster_serving.node.supervisor.generation import Generation

log = structlog.get_logger(__name__)

_OVERSUBSCRIBED = (
    "over-subscribed: more threads than cores; lower modelParallelism or threadPerModel, or leave both unset"
)


def tell_tuned(lanes: Generation, report: Report) -> None:
    """Announce the tuned settings, or that settings could be tuned and were not."""
    choice, measured, served = lanes.arrangement.choice, lanes.arrangement.measured, lanes.served_model
    shape = Shape(choice.workers, choice.threads).described()
    if measured:
        text = f"tuned: {shape}, batch {choice.batch} (measured {measured})"
    elif served.config.tuning != "off" and is_open(served.config, served.model.backend):
        text = f"{shape}, not measured: cluster-serving tune finds the best"
    else:
        return
    log.info(text)
    report("progress", text)


def tell_loading(lanes: Generation, report: Report, where: str = "") -> None:
    """Announce the model that is loading, more threads than cores, and the secret that loading waits for."""
    served, arrangement = lanes.served_model, lanes.arrangement
    if arrangement.oversubscribed:
        workers, threads, budget = arrangement.workers, arrangement.threads, arrangement.budget.described()
        log.warning(_OVERSUBSCRIBED, workers=workers, threads_per_model=threads, budget=budget)
        report("warning", f"{_OVERSUBSCRIBED} ({Shape(workers, threads).described()} on {budget})")
    report("progress", f"loading {served.model.definition.name} into {counted(lanes.workers, 'worker')}{where}")
    if served.config.model_encrypted and not served.config.model_secret:
        report("progress", "waiting for the model's secret and salt in the Redis hash model_secured")


def tell_serving(lanes: Generation, report: Report) -> None:
    """Announce the model that serves from now on."""
    served, arrangement = lanes.served_model, lanes.arrangement
    model, budget = served.model.definition.name, arrangement.budget.described()
    runtime = served.runtime.described(served.model.backend)
    batching = served.batching.described()
    job, workers = served.config.job_name, lanes.workers
    log.info("serving", job=job, model=model, runtime=runtime, batching=batching, workers=workers, budget=budget)
    if (proof := served.batching.proof) is not None and proof.fault:
        how = (
            "runs rows one by one" if served.batching.one_by_one else "runs them together all the same (batching: rows)"
        )
        text = f"rows that share a batch get other results: {proof.fault}; the node {how}"
        log.warning(text)
        report("warning", text)
    shapes = ", ".join(spec.describe() for spec in served.inputs) or "one or more tensors"
    if served.outputs:
        shapes += f" -> {', '.join(spec.describe() for spec in served.outputs)}"
    many = Shape(lanes.workers, arrangement.threads).described()
    tuned = f" (measured {arrangement.measured})" if arrangement.measured else ""
    batch = f"batch {arrangement.choice.batch}" if batching.startswith("rows") else f"batching {batching}"
    report("ready", f"{model} ({runtime}): {shapes}; {many}, {batch}{tuned}")
