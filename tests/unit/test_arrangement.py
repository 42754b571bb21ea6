import pytest
import structlog

from cluster_serving.node.arrangement import Arrangement, Share, arrange, chosen
from cluster_serving.node.config import Config
from cluster_serving.node.topology.budget import Allowance, Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.topology.placement import anywhere

EIGHT = Budget(tuple(Core(number, number, domain=number // 4) for number in range(8)))


def arranged(config: Config) -> Arrangement:
    return arrange(config, EIGHT, chosen(config, "onnx", EIGHT))


@pytest.mark.parametrize(
    ("settings", "backend", "quota", "size"),
    [
        ({}, "onnx", None, (7, 1)),
        ({}, "onnx", 1.5, (1, 1)),
        ({}, "onnx", 4.0, (3, 1)),
        ({"thread_per_model": 2}, "onnx", None, (3, 2)),
        ({"core_number_per_machine": 4}, "openvino", 1.5, (1, 4)),  # what is set wins
    ],
)
def test_size(settings: dict[str, int], backend: str, quota: float | None, size: tuple[int, int]) -> None:
    choice = chosen(Config.model_validate(settings), backend, EIGHT._replace(quota=quota))
    assert (choice.workers, choice.threads) == size


def test_places() -> None:
    kept = arranged(Config(thread_per_model=4, model_parallelism=2))
    free = arranged(Config(thread_per_model=4, model_parallelism=2, pinning=False))

    assert kept.places.workers == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert free.places == anywhere(2)


@pytest.mark.parametrize(("workers", "warned"), [(8, False), (9, True)])
def test_more_threads_than_cores_are_a_warning_with_numbers(workers: int, warned: bool) -> None:
    with structlog.testing.capture_logs() as lines:
        arranged(Config(model_parallelism=workers)).check()

    assert [(line["workers"], line["threads_per_model"], line["budget"]) for line in lines] == (
        [(9, 1, "8 cores (0-7)")] if warned else []
    )


@pytest.mark.parametrize(
    ("quotas", "followed"),
    [
        ([1, 1, 1, 1, 1], [1]),
        ([1, 1, None, 1, 1, None, None], []),  # up and down
        ([1, 2, 1, 2] * 20, []),
        ([1, 1, 1, None, 2, 2, 2, 2, 1, 1, 1], [1, 2, 1]),
        ([2, 2, 2, None, None, None], [2, None]),
    ],
)
def test_what_has_settled_is_followed(quotas: list[float | None], followed: list[float | None]) -> None:
    """Each change may load the model anew."""
    share = Share()
    cores = frozenset(range(1000, 1008))  # never this machine's
    for _ in range(3):
        share.look(Allowance(cores, None))

    assert [quota for quota in quotas if share.look(Allowance(cores, quota))] == followed


def test_share_of_a_machine_that_stays_as_it_is() -> None:
    share = Share()

    assert not share.changed()
    arrangement = share.arrange(Config(model_parallelism=2, thread_per_model=3), "onnx")
    assert (arrangement.workers, arrangement.threads) == (2, 3)
