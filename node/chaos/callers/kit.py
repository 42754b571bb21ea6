"""Kit of the callers: everything that a caller needs to know of a run."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cluster_serving.client.protocol.requests import Dialect
from cluster_serving.node.chaos.learn import Answers


class Kit(NamedTuple):
    """Everything that a caller needs to know of a run. The run pickles the kit into its own directory.

    Attributes:
        url: Redis of the run.
        job: stream of the run.
        seed: seed of the run.
        timeout_s: seconds in which any record is answered, whatever the faults.
        inputs: inputs of each sample, as a program passes them.
        good: samples without an effect on the worker.
        answers: the model's own answers.
        sent: dialect and sample of each record of the load, for the harvest.
    """

    url: str
    job: str
    seed: int
    timeout_s: float
    inputs: Sequence[Mapping[str, Any]]
    good: Sequence[int]
    answers: Answers
    sent: Mapping[str, tuple[Dialect, int]] = {}
