"""`tuning: start`: a measurement before a node serves for the first time."""

import structlog

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.config.choice import Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store, is_open
from cluster_serving.node.job.directory import Job
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.supervisor.change import Report
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.tuning.search import SearchProgress
from cluster_serving.node.tuning.tuner import Terms, keep, tune

log = structlog.get_logger(__name__)


def tune_first(config: Config, model: Detected, budget: Budget, job: Job, report: Report) -> None:
    """Measure and keep the result, if no kept result fits.

    A failed measurement is logged and reported, and the node serves without a result.
    """
    store = Store(job.directory)
    if not is_open(config, model.backend) or store.find(config, model, budget):
        return
    try:
        found = tune(config, model, budget, Terms(), _Progress(report), str(job.proof_directory(config.model_cache)))
        keep(store, config, model, budget, found)
    except (Fault, OSError) as error:
        log.warning("not tuned", reason=str(error))
        report("warning", f"not tuned: {error}")


class _Progress(SearchProgress):
    """Progress of the measurement, for the waiting `start`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._shapes: list[Shape] = []

    def begin(self, shapes: list[Shape]) -> None:
        self._shapes = shapes

    def opening(self, shape: Shape) -> None:
        at = self._shapes.index(shape) + 1
        self._report("progress", f"measuring {shape.described()} ({at} of {len(self._shapes)})")
