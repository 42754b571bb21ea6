"""Which lanes there are, and which worker runs on which cores: arithmetic, and the rule when it is worth it.

A lane is on one NUMA domain, and every domain has one, where there are workers for all of them and each fits into one. A worker
has cores of its own; fast ones before efficient ones, and a physical core of its own before the SMT sibling of another's. Reader
and writer have what is left.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core

# Cores of a machine where workers are kept on theirs. With two, pinning made 1.00 times the records a second, and 0.94 times with a
# model that computes (medians of 16 and 12 pairs, quartiles 0.8 to 1.2, a busy machine): nothing to gain where all need both.
_SMALLEST = 3
_ROOM = 2  # cores that reader and writer need, each to have one

LARGEST_LANE = 84  # workers: the ring's 255 slots are three a worker and three more


class LanePlaces(NamedTuple):
    """Where a lane is: the numbers of the cores of each worker, and of reader and writer; empty: any.

    `domain`: the NUMA domain that its processes and its ring are kept on; None: the node is on one alone, or the lane on several.
    """

    workers: tuple[tuple[int, ...], ...]
    others: tuple[int, ...] = ()
    domain: int | None = None


def lanes(budget: Budget, workers: int, threads: int) -> tuple[LanePlaces, ...]:
    """The lanes of a node that has this budget for itself.

    Where the workers do not fill the budget, or share its time with others, those of a lane have all cores of its domain, and the
    kernel sees to them; with fewer workers than domains nobody would use the rest, and there is one lane for all.
    """
    domains = _domains(budget.cores)
    crews = _dealt(list(domains.values()), workers, threads) or [0]
    if len(domains) == 1 or 0 in crews:
        return split(fitting(budget, workers, threads))
    own = _fill(budget, workers, threads)
    found = [
        split(_inside(domain, cores, crew, threads, own))
        for (domain, cores), crew in zip(domains.items(), crews, strict=True)
    ]
    return tuple(chain(*found))


def split(lane: LanePlaces) -> tuple[LanePlaces, ...]:
    """As many lanes as it takes for so many workers."""
    count = -(-len(lane.workers) // LARGEST_LANE)
    return tuple(lane._replace(workers=lane.workers[at::count]) for at in range(count))


def fitting(budget: Budget, workers: int, threads: int) -> LanePlaces:
    """Where to keep the processes of a lane that has the node's budget for itself.

    Only workers that fill the budget are kept on cores of their own. With room to spare, or a quota below the number of cores,
    others have the same cores, and would be given the same ones of them: then the kernel, which sees all, does better. On a
    machine that is too small for reader and writer to have cores too, they would wait for each other.
    """
    return place(budget.cores, workers, threads) if _fill(budget, workers, threads) else anywhere(workers)


def anywhere(workers: int) -> LanePlaces:
    """Nobody is kept anywhere."""
    return LanePlaces(((),) * workers)


def place(cores: Sequence[Core], workers: int, threads: int) -> LanePlaces:
    """Cores for so many workers of so many threads.

    A worker that does not fit into one domain has cores of several. Without a core a thread, nobody is kept anywhere.
    """
    if workers * threads > len(cores):
        return anywhere(workers)
    domains = list(_domains(cores).values())
    crews = _dealt(domains, workers, threads)
    if crews is None:
        domains, crews = [list(cores)], [workers]
    found = [
        taken
        for domain, crew in zip(domains, crews, strict=True)
        for taken in _within(_best_first(domain), crew, threads)
    ]
    taken = {number for numbers in found for number in numbers}
    left = tuple(core.number for core in cores if core.number not in taken)
    # One core for both would be a limit where none is: they then run wherever there is room, as the kernel sees it.
    return LanePlaces(tuple(found), left if len(left) >= _ROOM else ())


def _fill(budget: Budget, workers: int, threads: int) -> bool:
    """Whether so many workers have all of the budget's cores to themselves, and use them all."""
    count = len(budget.cores)
    return count >= _SMALLEST and budget.time >= count and budget.for_workers <= workers * threads <= count


def _domains(cores: Sequence[Core]) -> dict[int, list[Core]]:
    """The cores of each domain."""
    numbers = sorted({core.domain for core in cores})
    return {number: [core for core in cores if core.domain == number] for number in numbers}


def _inside(domain: int, cores: Sequence[Core], workers: int, threads: int, own: bool) -> LanePlaces:
    """A lane on one domain; `own`: its workers have cores of their own."""
    every = tuple(core.number for core in cores)
    places = place(cores, workers, threads) if own else LanePlaces((every,) * workers)
    return places._replace(others=places.others or every, domain=domain)


def _dealt(domains: Sequence[Sequence[Core]], workers: int, threads: int) -> list[int] | None:
    """How many workers each domain gets: the next one goes where most is free. None: they do not fit."""
    crews = [0] * len(domains)
    physical = [len({core.physical for core in domain}) for domain in domains]
    for _ in range(workers):
        fitting = [at for at, domain in enumerate(domains) if (crews[at] + 1) * threads <= len(domain)]
        if not fitting:
            return None
        crews[max(fitting, key=lambda at: (physical[at] - crews[at] * threads, -at))] += 1
    return crews


def _best_first(cores: Sequence[Core]) -> list[Core]:
    """One of each physical core, fast ones first; then their siblings."""
    seen: dict[int, int] = {}
    rank: dict[Core, int] = {}
    for core in cores:
        rank[core] = seen[core.physical] = seen.get(core.physical, -1) + 1
    return sorted(cores, key=lambda core: (rank[core], core.efficient, core.number))


def _within(cores: list[Core], workers: int, threads: int) -> list[tuple[int, ...]]:
    """Cores of one domain for its workers: physical cores are shared out, then what is left goes to those who lack."""
    physical = list(dict.fromkeys(core.physical for core in cores))
    left = list(cores)
    crews: list[list[Core]] = []
    for lacking in range(workers, 0, -1):
        # The first ones have one more where it does not come out even; nobody has more than he can use.
        share = min(threads, -(-len(physical) // lacking))
        own, physical = physical[:share], physical[share:]
        crews.append([core for core in left if core.physical in own][:threads])
        left = [core for core in left if core not in crews[-1]]
    for crew in crews:
        more = threads - len(crew)
        crew += left[:more]
        left = left[more:]
    return [tuple(sorted(core.number for core in crew)) for crew in crews]
