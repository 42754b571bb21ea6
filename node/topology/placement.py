"""Lanes of a node and the cores of each worker: the arithmetic, and the rule when pinning is worthwhile.

Every NUMA domain has a lane of its own if there are workers for all domains and each worker fits into a single domain. A worker
has cores of its own: fast cores before efficient cores, and free physical cores before SMT siblings of a neighbour's cores.
Reader and writer have the remaining cores.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core

# Least number of cores at which workers are pinned. With two cores, pinning made 1.00 times the records a second, and 0.94 times
# with a model that computes (medians of 16 and 12 pairs, quartiles 0.8 to 1.2, a busy machine). Pinning gains nothing where all
# processes need both cores.
_SMALLEST = 3
_ROOM = 2  # cores that reader and writer need, one core for each

LARGEST_LANE = 84  # workers: the ring's 255 slots are three for each worker and three more


class LanePlaces(NamedTuple):
    """Cores of the processes of a lane, by number. An empty tuple of cores means any core.

    `workers`: cores of each worker. `others`: cores of reader and writer. `domain`: NUMA domain of the processes and the ring,
    or None if the node is on a single domain or the lane on several domains.
    """

    workers: tuple[tuple[int, ...], ...]
    others: tuple[int, ...] = ()
    domain: int | None = None


def lanes(budget: Budget, workers: int, threads: int) -> tuple[LanePlaces, ...]:
    """Return the lanes of a node that has the budget for itself.

    Workers that do not fill the budget, or share processor time with other programs, have all cores of their lane's domain, and
    the kernel schedules them. With fewer workers than domains there is one lane for all domains, because the domains without a
    worker would be idle.
    """
    domains = _domains(budget.cores)
    crews = _dealt(list(domains.values()), workers, threads) or [0]
    if len(domains) == 1 or 0 in crews:
        return split(fitting(budget, workers, threads))
    own = _fill(budget, workers, threads)
    found: list[LanePlaces] = []
    for (domain, cores), crew in zip(domains.items(), crews, strict=True):
        every = tuple(core.number for core in cores)
        places = place(cores, crew, threads) if own else LanePlaces((every,) * crew)
        found += split(places._replace(others=places.others or every, domain=domain))
    return tuple(found)


def split(lane: LanePlaces) -> tuple[LanePlaces, ...]:
    """Split a lane into the fewest lanes with at most `LARGEST_LANE` workers each."""
    count = -(-len(lane.workers) // LARGEST_LANE)
    return tuple(lane._replace(workers=lane.workers[at::count]) for at in range(count))


def fitting(budget: Budget, workers: int, threads: int) -> LanePlaces:
    """Return the cores for the processes of a lane that has the node's budget for itself.

    Only workers that fill the budget are pinned to cores of their own. With room to spare, or with a quota below the number of
    cores, other nodes have the same cores and would pin their workers there too. The kernel sees all processes and then does
    better. On a machine too small to give reader and writer cores as well, pinned processes would wait for each other.
    """
    return place(budget.cores, workers, threads) if _fill(budget, workers, threads) else anywhere(workers)


def anywhere(workers: int) -> LanePlaces:
    """Return a lane of unpinned processes."""
    return LanePlaces(((),) * workers)


def place(cores: Sequence[Core], workers: int, threads: int) -> LanePlaces:
    """Return a lane with cores for `workers` workers of `threads` threads each.

    A worker that does not fit into one domain has cores of several domains. With fewer cores than threads, no process is pinned.
    """
    if workers * threads > len(cores):
        return anywhere(workers)
    domains = list(_domains(cores).values())
    crews = _dealt(domains, workers, threads)
    if crews is None:
        domains, crews = [list(cores)], [workers]
    found = [taken for domain, crew in zip(domains, crews, strict=True) for taken in _within(domain, crew, threads)]
    taken = {number for numbers in found for number in numbers}
    left = tuple(core.number for core in cores if core.number not in taken)
    # A single core for both reader and writer would be a needless limit. Without pinning, both run where the kernel finds room.
    return LanePlaces(tuple(found), left if len(left) >= _ROOM else ())


def _fill(budget: Budget, workers: int, threads: int) -> bool:
    """Return whether the workers have all of the budget's cores to themselves, and use all of them."""
    count = len(budget.cores)
    return count >= _SMALLEST and budget.time >= count and budget.beside_others <= workers * threads <= count


def _domains(cores: Sequence[Core]) -> dict[int, list[Core]]:
    """Return the cores of each domain."""
    numbers = sorted({core.domain for core in cores})
    return {number: [core for core in cores if core.domain == number] for number in numbers}


def _dealt(domains: Sequence[Sequence[Core]], workers: int, threads: int) -> list[int] | None:
    """Return the number of workers of each domain, or None if the workers do not fit.

    The next worker goes to the domain with the most free physical cores.
    """
    crews = [0] * len(domains)
    physical = [len({core.physical for core in domain}) for domain in domains]
    for _ in range(workers):
        fitting = [at for at, domain in enumerate(domains) if (crews[at] + 1) * threads <= len(domain)]
        if not fitting:
            return None
        crews[max(fitting, key=lambda at: (physical[at] - crews[at] * threads, -at))] += 1
    return crews


def _within(cores: Sequence[Core], workers: int, threads: int) -> list[tuple[int, ...]]:
    """Share out the cores of a domain to its workers: physical cores first, then the rest to workers with too few cores."""
    seen: dict[int, int] = {}
    rank: dict[Core, int] = {}
    for core in cores:
        rank[core] = seen[core.physical] = seen.get(core.physical, -1) + 1
    # First a core of each physical core, fast cores before efficient cores, then the SMT siblings.
    left = sorted(cores, key=lambda core: (rank[core], core.efficient, core.number))
    physical = list(dict.fromkeys(core.physical for core in left))
    crews: list[list[Core]] = []
    for lacking in range(workers, 0, -1):
        # Where the division is uneven, the first workers have one physical core more. No worker has more cores than threads.
        share = min(threads, -(-len(physical) // lacking))
        own, physical = physical[:share], physical[share:]
        crews.append([core for core in left if core.physical in own][:threads])
        left = [core for core in left if core not in crews[-1]]
    for crew in crews:
        more = threads - len(crew)
        crew += left[:more]
        left = left[more:]
    return [tuple(sorted(core.number for core in crew)) for crew in crews]
