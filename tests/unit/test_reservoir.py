"""A random sample of rows of unknown number."""

import numpy as np
import pytest

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.node.calibration.reservoir import Reservoir, UnequalRowsError
from cluster_serving.node.shadow.live_records import Row

SEED = 7


def row(value: float) -> Row:
    return {"x": np.array([value, 0], np.float32)}


def filled(size: int, rows: int, batch: int = 8, seed: int = SEED) -> Reservoir:
    """A sample of rows that come in batches, each row its own number."""
    reservoir = Reservoir(size, seed)
    for start in range(0, rows, batch):
        for place in reservoir.draw(range(min(batch, rows - start))):
            reservoir.put(row(start + place))
    return reservoir


def numbers(reservoir: Reservoir) -> list[float]:
    return [float(each["x"][0]) for each in reservoir.rows]


def test_all_rows_are_taken_until_the_sample_is_full() -> None:
    reservoir = filled(20, 13)

    assert (numbers(reservoir), reservoir.seen, reservoir.is_full) == (list(range(13)), 13, False)


def test_early_and_late_rows_have_the_same_chance() -> None:
    """By thirds of 3,000 rows, in 40 samples of 60: 800 of each are expected, and 4 standard deviations are 93."""
    thirds = [int(number // 1000) for seed in range(40) for number in numbers(filled(60, 3000, seed=seed))]

    assert len(thirds) == 2400
    assert all(abs(thirds.count(third) - 800) < 93 for third in range(3))


def test_rows_that_could_not_be_decoded_leave_their_places_to_later_rows() -> None:
    reservoir = Reservoir(4, SEED)
    for _ in reservoir.draw(range(4)):
        pass
    for _ in range(200):
        for _place in reservoir.draw([0]):
            reservoir.put(row(1))

    assert reservoir.is_full


def test_rows_of_different_shapes_are_refused() -> None:
    reservoir = filled(4, 1)

    with pytest.raises(UnequalRowsError, match=r"'x' has shape \[2\] in one record and \[3\] in another"):
        reservoir.put({"x": np.zeros(3, np.float32)})


@pytest.mark.parametrize(("axis", "shape"), [(0, (5, 2)), (1, (2, 5))])
def test_the_rows_stand_along_the_batch_dimension(axis: int, shape: tuple[int, int]) -> None:
    arrays = filled(5, 5).arrays([TensorSpec("x", "float32", (None, None), axis)])

    assert arrays["x"].shape == shape
