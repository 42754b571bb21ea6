from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core, describe
from support.machines import Machine, budget_of


@given(st.frozensets(st.integers(0, 2000)))
def test_list_survives_writing(numbers: frozenset[int]) -> None:
    assert cpulist.parse(cpulist.written(numbers)) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"), [("", set()), ("\n", set()), ("5", {5}), ("0-2,7\n", {0, 1, 2, 7}), ("1,0", {0, 1})]
)
def test_list_of_the_kernel(text: str, numbers: set[int]) -> None:
    assert cpulist.parse(text) == numbers


@pytest.mark.parametrize("siblings", [1, 2])
@pytest.mark.parametrize("domains", [1, 2, 4, 8])
def test_domains_and_siblings(tmp_path: Path, domains: int, siblings: int) -> None:
    machine = Machine(domains=domains, cores=4, siblings=siblings, packages=min(2, domains))

    budget = budget_of(range(machine.count), machine.build(tmp_path))

    assert [core.number for core in budget.cores] == list(range(machine.count))
    assert {core.domain for core in budget.cores} == set(range(domains))
    assert {core.package for core in budget.cores} == set(range(min(2, domains)))
    assert all(core.domain == machine.domain_of(core.number) for core in budget.cores)
    assert all(core.physical == core.number % (domains * 4) for core in budget.cores)
    assert budget.physical == domains * 4
    assert budget.beside_others == domains * 4 - (siblings == 1)


def test_machine_without_sysfs(tmp_path: Path) -> None:
    budget = budget_of({0, 3}, tmp_path)

    assert budget == Budget((Core(0, 0), Core(3, 3)))


def test_offline_core_is_not_allowed_and_its_sibling_is_alone(tmp_path: Path) -> None:
    root = Machine(cores=2, siblings=2, offline={0, 3}).build(tmp_path)

    budget = budget_of({0, 1, 2, 3}, root)

    assert budget.cores == (Core(1, 1), Core(2, 2))


def test_domain_without_cores_is_no_domain(tmp_path: Path) -> None:
    root = Machine(domains=2, cores=2, empty=2).build(tmp_path)

    assert {core.domain for core in describe(range(4), root)} == {0, 1}


def test_cores_of_a_domain_without_memory_count_to_the_nearest(tmp_path: Path) -> None:
    root = Machine(domains=4, cores=1, memoryless={1, 2}).build(tmp_path)

    assert [core.domain for core in describe(range(4), root)] == [0, 0, 3, 3]


@pytest.mark.parametrize(
    "files",
    [
        {},  # by cpufreq
        {"sys/devices/cpu_core/cpus": "0-1"},
        {
            f"sys/devices/system/cpu/cpu{number}/cpu_capacity": text
            for number, text in enumerate(("1024", "900", "400"))
        },
    ],
)
def test_efficient_cores(tmp_path: Path, files: dict[str, str]) -> None:
    root = Machine(cores=3, efficient=[] if files else [2], files=files).build(tmp_path)

    assert [core.efficient for core in describe(range(3), root)] == [False, False, True]


def test_package_that_the_firmware_does_not_know(tmp_path: Path) -> None:
    root = Machine(cores=1, files={"sys/devices/system/cpu/cpu0/topology/physical_package_id": "-1"}).build(tmp_path)

    assert describe([0], root) == (Core(0, 0),)


@pytest.mark.parametrize(
    ("cores", "siblings", "quota", "time", "whole", "for_workers", "beside_others"),
    [
        (1, 1, None, 1, 1, 1, 1),
        (2, 1, None, 2, 2, 2, 1),
        (4, 1, None, 4, 4, 4, 3),
        (5, 1, None, 5, 5, 4, 4),
        (16, 1, None, 16, 16, 15, 15),
        (8, 2, None, 16, 16, 8, 8),
        (1, 2, None, 2, 2, 1, 1),
        (2, 2, None, 4, 4, 2, 2),
        (64, 1, 1.5, 1.5, 1, 1, 1),
        (64, 1, 0.2, 0.2, 1, 1, 1),
        (64, 2, 4.5, 4.5, 4, 4, 3),
        (2, 1, 100.0, 2, 2, 2, 1),
    ],
)
def test_budget(
    cores: int,
    siblings: int,
    quota: float | None,
    time: float,
    whole: int,
    for_workers: int,
    beside_others: int,
    tmp_path: Path,
) -> None:
    root = Machine(cores=cores, siblings=siblings).build(tmp_path)

    budget = budget_of(range(cores * siblings), root)._replace(quota=quota)

    assert (budget.time, budget.whole) == (time, whole)
    assert (budget.for_workers, budget.beside_others) == (for_workers, beside_others)


def test_budget_in_words(tmp_path: Path) -> None:
    budget = budget_of({0, 1, 3}, tmp_path)

    assert budget.described() == "3 cores (0-1,3)"
    assert budget._replace(quota=1.5).described() == "1.5 of 3 cores (0-1,3)"
    assert budget_of({4}, tmp_path).described() == "1 core (4)"
