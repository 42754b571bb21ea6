"""Proof on the first rows that a worker serves that rows may share a batch.

Rows that were made up at the start may have told nothing, as a detector that finds nothing in noise, or not all.
"""

from collections.abc import Mapping

import numpy as np
import structlog

from cluster_serving.node.engines.proof import ROWS, Proof, Run, prove, taken
from cluster_serving.node.models.base import Array

log = structlog.get_logger(__name__)


class FirstRows:
    """Check of the first batches of a worker. Of many batches that tell nothing, the 1st, 2nd, 4th, 8th, ... is checked.

    Args:
        run: runs the model on arrays with the rows in front, and on their number.
        tolerance: largest accepted difference, as a share of the largest value of an output.
    """

    def __init__(self, run: Run, tolerance: float) -> None:
        self._run = run
        self._tolerance = tolerance
        self._batches = 0

    def is_due(self) -> bool:
        """Count a batch, and return whether it is to be checked."""
        self._batches += 1
        return not self._batches & (self._batches - 1)

    def proof(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Proof | None:
        """Run a few rows of a batch alone, and compare them with the outputs of the batch. `None`: the rows tell nothing."""
        count = len(next(iter(inputs.values())))
        rows = sorted(set(np.linspace(0, count - 1, ROWS).astype(int).tolist()))
        try:
            return prove(self._run, taken(inputs, rows), self._tolerance, taken(outputs, rows))
        except Exception as error:  # a model may raise anything
            log.debug("batching is not proven with these rows", reason=" ".join(str(error).split()))
            return None
