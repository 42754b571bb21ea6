from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_serving.node.ring.ring import Ring
from cluster_serving.node.ring.slot import Geometry
from cluster_serving.node.supervisor.lane import slots_for
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.topology.placement import LARGEST_LANE, LanePlaces, anywhere, fitting, lanes, place, split
from support.machines import Machine, budget_of

SMT = tuple(Core(number, number % 4) for number in range(8))
FLAT = tuple(Core(number, number) for number in range(4))
HYBRID = tuple(Core(number, number % 2 if number < 4 else number, efficient=number >= 4) for number in range(8))


@pytest.mark.parametrize(
    ("cores", "workers", "threads", "expected", "others"),
    [
        (FLAT, 3, 1, [(0,), (1,), (2,)], ()),
        (FLAT, 2, 1, [(0,), (1,)], (2, 3)),
        (FLAT, 1, 3, [(0, 1, 2)], ()),
        (FLAT, 2, 2, [(0, 1), (2, 3)], ()),
        # Siblings stay free as long as there are physical cores.
        (SMT, 4, 1, [(0,), (1,), (2,), (3,)], (4, 5, 6, 7)),
        (SMT, 2, 2, [(0, 1), (2, 3)], (4, 5, 6, 7)),
        # With more threads a worker has both siblings of a core rather than one of another worker's.
        (SMT, 4, 2, [(0, 4), (1, 5), (2, 6), (3, 7)], ()),
        (SMT, 3, 2, [(0, 1), (2, 6), (3, 7)], (4, 5)),
        (SMT, 5, 1, [(0,), (1,), (2,), (3,), (4,)], (5, 6, 7)),
        (SMT, 2, 3, [(0, 1, 4), (2, 3, 6)], (5, 7)),
        # Fast ones first, then efficient ones, then siblings.
        (HYBRID, 2, 1, [(0,), (1,)], (2, 3, 4, 5, 6, 7)),
        (HYBRID, 6, 1, [(0,), (1,), (4,), (5,), (6,), (7,)], (2, 3)),
        (FLAT, 5, 1, [(), (), (), (), ()], ()),
        (FLAT, 1, 5, [()], ()),
    ],
)
def test_cores_of_each_worker(
    cores: tuple[Core, ...], workers: int, threads: int, expected: list[tuple[int, ...]], others: tuple[int, ...]
) -> None:
    assert place(cores, workers, threads) == LanePlaces(tuple(expected), others)


@pytest.mark.parametrize("siblings", [1, 2])
@pytest.mark.parametrize("domains", [1, 2, 4, 8])
def test_workers_are_spread_over_domains_and_stay_inside(tmp_path: Path, domains: int, siblings: int) -> None:
    machine = Machine(domains=domains, cores=4, siblings=siblings)
    budget = budget_of(range(machine.count), machine.build(tmp_path))

    workers = place(budget.cores, 2 * domains, 2).workers

    homes = [{machine.domain_of(number) for number in cores} for cores in workers]
    assert all(len(home) == 1 for home in homes)
    assert sorted(chain(*homes)) == sorted([*range(domains), *range(domains)])


def test_worker_that_fits_into_no_domain_has_cores_of_several(tmp_path: Path) -> None:
    root = Machine(domains=2, cores=2).build(tmp_path)

    assert place(budget_of(range(4), root).cores, 1, 3).workers == ((0, 1, 2),)


@st.composite
def cores_of_some_machine(draw: st.DrawFn) -> tuple[Core, ...]:
    """Cores of any machine, with holes."""
    domains, cores, siblings = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 5)), draw(st.integers(1, 2))
    count = domains * cores
    allowed = draw(st.frozensets(st.integers(0, count * siblings - 1), min_size=1))
    slow = draw(st.frozensets(st.integers(0, count - 1)))
    return tuple(Core(n, n % count, domain=n % count // cores, efficient=n % count in slow) for n in sorted(allowed))


@settings(max_examples=300)
@given(cores=cores_of_some_machine(), workers=st.integers(1, 20), threads=st.integers(1, 6))
def test_properties(cores: tuple[Core, ...], workers: int, threads: int) -> None:
    """Workers' cores are allowed, disjoint, as many as threads; of one domain and physical ones as long as there are enough."""
    known = {core.number: core for core in cores}

    places = place(cores, workers, threads)

    assert len(places.workers) == workers
    if workers * threads > len(cores):
        assert places == anywhere(workers)
        return
    taken = list(chain(*places.workers))
    assert all(len(own) == threads for own in places.workers)
    assert len(set(taken)) == len(taken)
    assert set(taken) | set(places.others) <= known.keys()
    assert not set(taken) & set(places.others)
    sizes = Counter(core.domain for core in cores)
    if sum(size // threads for size in sizes.values()) >= workers:
        assert all(len({known[number].domain for number in own}) == 1 for own in places.workers)
    physical = len({core.physical for core in cores})
    if (threads == 1 or len({core.domain for core in cores}) == 1) and workers * threads <= physical:
        assert len({known[number].physical for number in taken}) == workers * threads


@pytest.mark.parametrize(
    ("cores", "quota", "workers", "threads", "kept"),
    [
        (4, None, 3, 1, True),
        (4, None, 4, 1, True),
        (4, None, 1, 3, True),
        (4, None, 2, 1, False),  # room to spare
        (4, None, 5, 1, False),  # more than there are
        (4, 1.5, 1, 1, False),
        (4, 4.0, 3, 1, True),  # a quota that is none
    ],
)
def test_workers_are_kept_where_they_fill_the_budget(
    cores: int, quota: float | None, workers: int, threads: int, kept: bool
) -> None:
    budget = Budget(tuple(Core(number, number) for number in range(cores)), quota)

    assert (fitting(budget, workers, threads) != anywhere(workers)) is kept


def machine(root: Path, domains: int, siblings: int = 1) -> Budget:
    """Four physical cores a domain."""
    made = Machine(domains=domains, cores=4, siblings=siblings)
    return budget_of(range(made.count), made.build(root))


@pytest.mark.parametrize("siblings", [1, 2])
@pytest.mark.parametrize("domains", [2, 4, 8])
def test_every_domain_has_a_lane_and_all_that_a_lane_has_is_on_its_domain(
    tmp_path: Path, domains: int, siblings: int
) -> None:
    budget = machine(tmp_path, domains, siblings)
    home = {core.number: core.domain for core in budget.cores}

    found = lanes(budget, budget.beside_others, 1)

    assert [lane.domain for lane in found] == list(range(domains))
    assert sum(len(lane.workers) for lane in found) == budget.beside_others
    assert max(len(lane.workers) for lane in found) - min(len(lane.workers) for lane in found) <= 1
    for lane in found:
        assert {home[number] for number in chain(lane.others, *lane.workers)} == {lane.domain}
    taken = list(chain(*chain(*(lane.workers for lane in found))))
    assert len(set(taken)) == len(taken) == budget.beside_others


def test_reader_and_writer_have_the_siblings_of_their_domain_or_all_its_cores(tmp_path: Path) -> None:
    (tmp_path / "smt").mkdir()
    smt, flat = machine(tmp_path / "smt", 2, siblings=2), machine(tmp_path, 2)

    assert [lane.others for lane in lanes(smt, 8, 1)] == [(8, 9, 10, 11), (12, 13, 14, 15)]
    assert [lane.others for lane in lanes(flat, 7, 1)] == [(0, 1, 2, 3), (4, 5, 6, 7)]


@pytest.mark.parametrize(
    ("workers", "threads", "quota"),
    [
        (4, 1, None),  # room to spare
        (7, 1, 7.5),
        (2, 1, 3.0),
    ],
)
def test_workers_without_cores_of_their_own_have_all_of_their_domain(
    tmp_path: Path, workers: int, threads: int, quota: float | None
) -> None:
    first, second = (0, 1, 2, 3), (4, 5, 6, 7)
    many, few = -(-workers // 2), workers // 2

    assert lanes(machine(tmp_path, 2)._replace(quota=quota), workers, threads) == (
        LanePlaces((first,) * many, first, 0),
        LanePlaces((second,) * few, second, 1),
    )


@pytest.mark.parametrize(
    ("domains", "workers", "threads"),
    [
        (1, 3, 1),
        (2, 1, 4),  # fewer workers than domains
        (4, 3, 1),
        (2, 2, 5),  # more threads than cores
        (2, 1, 7),  # a worker that is wider than a domain
        (2, 9, 1),
    ],
)
def test_one_lane_has_what_it_had_before_there_were_lanes(
    tmp_path: Path, domains: int, workers: int, threads: int
) -> None:
    budget = machine(tmp_path, domains)

    assert lanes(budget, workers, threads) == (fitting(budget, workers, threads),)


def test_a_mask_from_outside_is_kept(tmp_path: Path) -> None:
    made = Machine(domains=2, cores=4)
    root = made.build(tmp_path)

    assert lanes(budget_of([1, 2, 3], root), 2, 1) == (LanePlaces(((1,), (2,))),)
    assert lanes(budget_of([1, 2, 5, 6], root), 3, 1) == (
        LanePlaces(((1,), (2,)), (1, 2), 0),
        LanePlaces(((5,),), (5, 6), 1),
    )


@pytest.mark.parametrize(("workers", "sizes"), [(84, [84]), (85, [43, 42]), (168, [84, 84]), (169, [57, 56, 56])])
def test_lanes_are_no_larger_than_a_ring(workers: int, sizes: list[int]) -> None:
    lane = LanePlaces(tuple((number,) for number in range(workers)), (500, 501), 3)

    found = split(lane)

    assert [len(part.workers) for part in found] == sizes
    assert sorted(chain(*(part.workers for part in found))) == sorted(lane.workers)
    assert {(part.others, part.domain) for part in found} == {((500, 501), 3)}


def test_the_largest_lane_fits_into_a_ring() -> None:
    geometry = Geometry(slots=slots_for(LARGEST_LANE), batch=1, slot_bytes=4096, workers=LARGEST_LANE)
    ring = Ring(geometry)

    ring.set_serving(LARGEST_LANE - 1, True)

    assert ring.least_loaded() == (LARGEST_LANE - 1, 0)
    ring.close()
