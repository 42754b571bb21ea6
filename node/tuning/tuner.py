"""Tuning of a configuration: measure the open settings, and make a report."""

import time

import msgspec

from cluster_serving.node.config.arrangement import DEFAULT_BATCH
from cluster_serving.node.config.choice import Choice, Given, Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Objective
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.supervisor.child import allow_descriptors
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.tuning.candidates import Candidate, batches, shapes
from cluster_serving.node.tuning.errors import Refused, TuningError
from cluster_serving.node.tuning.report import TuningReport, described
from cluster_serving.node.tuning.search import Search, SearchProgress
from cluster_serving.node.tuning.stand import Stand
from cluster_serving.node.tuning.trial_redis import on_trial_redis

SECONDS = 0.5
_SMALL_BATCH = 4
_LARGEST_S = 2.0


class Terms(msgspec.Struct, frozen=True):
    """Terms of a tuning: the least seconds of a measurement, and `exhaustive` to measure every candidate."""

    seconds: float = SECONDS
    exhaustive: bool = False


def tune(
    config: Config, model: Detected, budget: Budget, terms: Terms, watch: SearchProgress, proof_directory: str = ""
) -> TuningReport:
    """Measure the settings that the configuration leaves open.

    Args:
        config: a complete configuration.
        model: model that the configuration serves.
        budget: share of the machine for the model.
        terms: duration and number of measurements.
        watch: receives the progress.
        proof_directory: store of the workers' proofs that rows may share a batch. Empty: nothing is kept.

    Raises:
        ModelFault: the model cannot be loaded.
        TuningError: no candidate can be measured.
    """
    allow_descriptors()
    begun_s = time.monotonic()
    given, objective = Given.by(config, model.backend), Objective.parse(config.objective)
    todo = shapes(budget, given)
    watch.begin(todo)
    with (
        on_trial_redis(config) as trial,
        Stand(trial, model, budget, objective, watch.check, proof_directory) as stand,
    ):
        sizes = _sizes(stand, todo[0], given, config, terms)
        search = Search(stand, objective, sizes, terms.seconds, watch, exhaustive=terms.exhaustive)
        (workers, threads), batch = search.run(todo)
        return TuningReport(
            model_hash=stand.model_hash,
            choice=Choice(workers, threads, batch, stand.runtime),
            objective=objective,
            budget=budget.described(),
            tried=sorted(search.tried.values(), key=lambda one: (one.candidate.shape.cost, one.candidate.batch)),
            took_s=time.monotonic() - begun_s,
            busiest_load=stand.busiest_load,
            runtimes=stand.runtimes,
            batching=stand.batching.described(),
        )


def keep(store: Store, config: Config, model: Detected, budget: Budget, report: TuningReport) -> bool:
    """Keep the report for the next starts, and return whether the report was kept.

    Without the fingerprint of the model, no start could find the report.

    Raises:
        OSError: the report cannot be written.
    """
    if report.model_hash:
        store.keep(config, model.backend, report.model_hash, budget, report.choice, described(report))
    return bool(report.model_hash)


def _sizes(stand: Stand, shape: Shape, given: Given, config: Config, terms: Terms) -> list[int]:
    """Return the batch sizes to choose from, learned from a first lane.

    A worker is warmed up with every size up to the largest. A model that takes seconds for a few records would take minutes, so
    batches of more than 2 s are left out.

    Raises:
        TuningError: no record is answered.
    """
    small = given.batch or _SMALL_BATCH
    stand.open(shape, small)
    try:
        rate = stand.measure(Candidate(shape, small), terms.seconds).rate / shape.workers
    except Refused as refused:
        made_up = "" if config.calibration_data else "; these records were made up: name your own in calibrationData"
        raise TuningError(f"no record is answered: {refused}{made_up}") from None
    stand.close(shape)
    if stand.batching.mode == "none" or stand.batching.one_by_one:
        return [given.batch or DEFAULT_BATCH]
    sizes = batches(given, stand.inputs, config.slot_bytes)
    return [size for size in sizes if len(sizes) == 1 or size <= max(small, rate * _LARGEST_S)]
