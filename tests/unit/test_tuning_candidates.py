import pytest

from cluster_serving.node.config.choice import Given, Shape
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.objective import Objective
from cluster_serving.node.models.base import TensorSpec
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.tuning.candidates import Candidate, batches, shapes

OPEN = Given(None, None, None)
X = TensorSpec("x", "float32", (None, 1000))


def budget(cores: int, siblings: int = 1, quota: float | None = None) -> Budget:
    return Budget(tuple(Core(number, number % (cores // siblings)) for number in range(cores)), quota)


@pytest.mark.parametrize(
    ("machine", "given", "expected"),
    [
        (budget(1), OPEN, [(1, 1)]),
        (budget(2), OPEN, [(1, 1), (2, 1), (1, 2)]),
        (budget(8, quota=1.5), OPEN, [(1, 1)]),
        (budget(4), Given(2, None, None), [(2, 1), (2, 2)]),
        (budget(4), Given(8, None, None), [(8, 1)]),
        (budget(4), Given(None, 2, None), [(1, 2), (2, 2)]),
        (budget(4), Given(None, 16, None), [(1, 16)]),
        (budget(4), Given(3, 5, None), [(3, 5)]),
    ],
)
def test_shapes_within_a_budget(machine: Budget, given: Given, expected: list[tuple[int, int]]) -> None:
    assert shapes(machine, given) == [Shape(*pair) for pair in expected]


@pytest.mark.parametrize("machine", [budget(8), budget(64), budget(256, 2), budget(96, quota=10.5)])
def test_shapes_keep_within_the_machine_fill_it_and_are_few(machine: Budget) -> None:
    found = shapes(machine, OPEN)

    assert max(shape.workers * shape.threads for shape in found) == machine.whole
    assert {Shape(machine.beside_others, 1), Shape(machine.whole, 1), Shape(1, machine.whole), Shape(1, 1)} <= set(
        found
    )
    assert found == sorted(set(found), key=lambda shape: shape.cost)
    assert len(found) <= 4 * machine.whole.bit_length()


def test_number_of_cores_of_the_original_leaves_the_batch_open() -> None:
    config = Config(core_number_per_machine=4)

    assert Given.by(config, "onnx") == Given(4, 1, None)
    assert Given.by(config, "openvino") == Given(1, 4, None)


@pytest.mark.parametrize(
    ("given", "spec", "expected"),
    [
        (OPEN, X, [1, 2, 4, 8, 16, 32, 64]),
        (Given(None, None, 24), X, [24]),
        (OPEN, TensorSpec("x", "float32", (8, 1000)), [8]),  # the model was made for it
        (OPEN, TensorSpec("x", "float32", (None, 40_000)), [1, 2, 4]),  # a slot has room for six
        (OPEN, TensorSpec("x", "float32", (None, 1_000_000)), [1]),
    ],
)
def test_batch_sizes(given: Given, spec: TensorSpec, expected: list[int]) -> None:
    assert batches(given, [spec], 1_000_000) == expected


def test_the_simpler_shape_costs_less_then_the_batch_that_is_nearer_to_the_usual_one() -> None:
    fewest, four, two_by_two, most = (Shape(1, 1), Shape(4, 1), Shape(2, 2), Shape(8, 1))
    small, middle = Candidate(four, 16), Candidate(four, 32)
    before, behind = [Candidate(fewest, 64)], [Candidate(two_by_two, 32), Candidate(most, 64)]
    mixed = [*behind[::-1], small, *before, middle]

    assert sorted(mixed, key=lambda one: one.cost(32)) == [*before, middle, small, *behind]
    assert sorted(mixed, key=lambda one: one.cost(8)) == [*before, small, middle, *behind]


@pytest.mark.parametrize(
    "text", ["", "fast", "latency", "latency: 0", "latency: -1", "latency: inf", "latency: nan", {}]
)
def test_what_is_no_objective(text: object) -> None:
    with pytest.raises(ValueError, match="must be throughput, or latency"):
        Objective.parse(text)
