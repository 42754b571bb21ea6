"""A worker warns of threads that a library started against what it was told."""

import os

import pytest
from structlog.testing import capture_logs

from cluster_serving.node.topology.threads import Threads
from cluster_serving.node.worker.worker import check_threads

OURS = tuple(sorted(os.sched_getaffinity(0)))
OTHER = OURS[-1] + 1


@pytest.mark.parametrize(
    ("computing", "cores", "warnings"),
    [
        (1, OURS, []),
        (4 + len(OURS), OURS, ["over-subscribed"]),
        (1, (*OURS, OTHER), ["threads of a library run on cores that are not this worker's"]),
    ],
)
def test_threads_that_are_too_many_or_elsewhere(computing: int, cores: tuple[int, ...], warnings: list[str]) -> None:
    with capture_logs() as logs:
        check_threads(Threads(9, computing, cores), 1)

    assert [(line["log_level"], line["event"].split(":")[0].split(";")[0]) for line in logs] == [
        ("warning", warning) for warning in warnings
    ]
    assert all(line.get("not_ours", str(OTHER)) == str(OTHER) for line in logs)
