from collections.abc import Collection
from pathlib import Path

import pytest

from cluster_serving.node.config.arrangement import Arrangement, arrange, best_arrangement, chosen, most_copies
from cluster_serving.node.config.choice import Choice
from cluster_serving.node.config.loading import Config
from cluster_serving.node.config.tuned import Store
from cluster_serving.node.models.detect import Detected
from cluster_serving.node.models.runtime import Runtime
from cluster_serving.node.topology.budget import Allowance, Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.topology.placement import LanePlaces, anywhere
from cluster_serving.node.topology.share import Share
from support.machines import Machine, budget_of

EIGHT = Budget(tuple(Core(number, number, domain=number // 4) for number in range(8)))


def arranged(config: Config) -> Arrangement:
    return arrange(config, EIGHT, chosen(config, "onnx", EIGHT))


@pytest.mark.parametrize(
    ("settings", "backend", "quota", "size"),
    [
        ({}, "onnx", None, (7, 1)),
        ({}, "onnx", 1.5, (1, 1)),
        ({}, "onnx", 4.0, (4, 1)),
        ({"thread_per_model": 2}, "onnx", None, (3, 2)),
        ({"core_number_per_machine": 4}, "openvino", 1.5, (1, 4)),  # what is set wins
        ({"objective": "latency: 20"}, "onnx", None, (2, 3)),  # a worker for each domain
        ({"objective": "latency: 20"}, "onnx", 1.5, (1, 1)),
        ({"objective": "latency: 20", "thread_per_model": 1}, "onnx", None, (7, 1)),
        ({"objective": "latency: 20", "model_parallelism": 4}, "onnx", None, (4, 1)),
    ],
)
def test_size(settings: dict[str, int], backend: str, quota: float | None, size: tuple[int, int]) -> None:
    choice = chosen(Config.model_validate(settings), backend, EIGHT._replace(quota=quota))
    assert (choice.workers, choice.threads) == size


def test_places() -> None:
    kept = arranged(Config(thread_per_model=4, model_parallelism=2))
    free = arranged(Config(thread_per_model=4, model_parallelism=2, pinning=False))

    first, second = (0, 1, 2, 3), (4, 5, 6, 7)
    assert kept.lanes == (LanePlaces((first,), first, 0), LanePlaces((second,), second, 1))
    assert free.lanes == (anywhere(2),)


def test_more_workers_than_a_ring_has_slots_for_are_in_several_lanes() -> None:
    assert arranged(Config(model_parallelism=170, pinning=False)).lanes == (anywhere(57), anywhere(57), anywhere(56))


@pytest.mark.parametrize(
    ("mask", "threads", "workers", "rooms"),
    [
        (range(8), 1, 7, [4, 4]),
        ([0, 1], 1, 1, [8]),  # one domain now: what it may come to be is another lane
        ([0, 4], 1, 2, [4, 4]),
        ([0, 4], 1, 9, [9]),  # what is set
        (range(8), 2, 4, [2, 2]),
    ],
)
def test_a_lane_has_room_for_the_workers_of_all_cores_of_its_domain(
    mask: Collection[int], threads: int, workers: int, rooms: list[int], tmp_path: Path
) -> None:
    budget = budget_of(mask, Machine(domains=2, cores=4, siblings=2).build(tmp_path))
    config = Config(model_parallelism=workers, thread_per_model=threads)

    arrangement = arrange(config, budget, chosen(config, "onnx", budget))

    assert [arrangement.room(lane) for lane in arrangement.lanes] == rooms


@pytest.mark.parametrize(("workers", "warned"), [(8, False), (9, True)])
def test_more_threads_than_cores_are_too_many(workers: int, warned: bool) -> None:
    assert arranged(Config(model_parallelism=workers)).oversubscribed == warned


@pytest.mark.parametrize(
    ("quotas", "followed"),
    [
        ([1, 1, 1, 1], [1]),
        ([1, None, 1, None, None, 1, None], []),  # up and down
        ([1, 2, 1, 2] * 20, []),
        ([1, 1, None, 2, 2, 2, 1, 1], [1, 2, 1]),
        ([2, 2, None, None], [2, None]),
    ],
)
def test_what_has_settled_is_followed(quotas: list[float | None], followed: list[float | None]) -> None:
    share = Share()
    cores = frozenset(range(1000, 1008))  # never this machine's
    for _ in range(2):
        share.look(Allowance(cores, None))

    assert [quota for quota in quotas if share.look(Allowance(cores, quota))] == followed


def test_share_of_a_machine_that_stays_as_it_is() -> None:
    assert not Share().changed()


def test_settings_are_arranged_where_nothing_was_measured(tmp_path: Path) -> None:
    config = Config(model_parallelism=2, thread_per_model=3)

    arrangement = best_arrangement(config, Detected("onnx", "model.onnx"), EIGHT, Store(tmp_path))

    assert (arrangement.workers, arrangement.threads) == (2, 3)


@pytest.mark.parametrize(("memory_gb", "workers"), [(64, 31), (2, 1), (1, 1)])
def test_half_of_the_memory_is_for_copies_of_the_model(memory_gb: int, workers: int, tmp_path: Path) -> None:
    machine = Machine(files={"proc/meminfo": f"MemTotal: {memory_gb << 20} kB"}).build(tmp_path)
    model = tmp_path / "model.onnx"
    with model.open("wb") as stream:
        stream.truncate(900 << 20)  # a worker takes 128 MB more

    assert most_copies(Detected("onnx", str(model)), machine) == workers


def test_a_shadow_has_one_of_the_copies_of_the_model() -> None:
    workers = [chosen(Config(shadow=share), "onnx", EIGHT, copies=3).workers for share in (0.0, 0.01)]

    assert workers == [3, 2]
    assert chosen(Config(shadow=0.01), "onnx", EIGHT, copies=1).workers == 1


def test_batch_and_runtime_stay_where_nothing_was_measured_for_another_budget(tmp_path: Path) -> None:
    running = Choice(7, 1, 12, Runtime("openvino", "bf16"))

    config, model = Config(model_parallelism=2), Detected("onnx", "model.onnx")
    arrangement = best_arrangement(config, model, EIGHT, Store(tmp_path), running)

    assert arrangement.choice == Choice(2, arrangement.threads, 12, Runtime("openvino", "bf16"))
