"""When a batch leaves."""

import pytest

from cluster_serving.node.reader.batcher import leaves


@pytest.mark.parametrize(
    ("full", "least_load", "age_ms", "max_delay_ms", "expected"),
    [
        (True, 0, 0, 0, True),
        (True, 0, 0, 1000, True),  # a full batch has nothing to wait for
        (True, 1, 0, 0, True),  # one waits while one runs
        (True, 2, 1e9, 0, False),  # and none queues behind a slow one
        (True, 7, 1e9, 0, False),
        (False, 0, 0, 0, True),  # an idle worker takes what there is
        (False, 1, 0, 0, False),  # a busy one leaves it to fill
        (False, 1, 1e9, 5, False),
        (False, 0, 4.9, 5, False),
        (False, 0, 5, 5, True),
        (False, 0, -3, 0, False),  # a clock that was set back
    ],
)
def test_leaves(full: bool, least_load: int, age_ms: float, max_delay_ms: float, expected: bool) -> None:
    assert leaves(full, least_load, age_ms, max_delay_ms) is expected
