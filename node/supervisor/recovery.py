"""What becomes of the slots of a worker that has ended: they are run again, and what a run died with is taken apart."""

from cluster_serving.node.ring.ring import Ring, State


def recover(ring: Ring, worker: int, followed: bool, error: tuple[str, str], stacks: str = "") -> bool:
    """Leave what a worker was running to its successor, and give what waited for it to others; it gets no more from now on.

    What one worker died with must not come to the next: a lane where all die stands still. Only where the dead one is not
    `followed` by another, a neighbour has to take it.

    Args:
        ring: of the lane.
        worker: who has ended.
        followed: whether another one will take its place.
        error: what a record gets that a worker has died with alone, twice.
        stacks: of the worker, where it hung.

    Returns:
        Whether a run was interrupted.
    """
    ring.set_serving(worker, False)
    running, waiting = ring.owned(worker, State.RUNNING), ring.owned(worker, State.READY)
    for slot in running:
        ring.slots[slot].worker_died(error, stacks)
        _hand_over(ring, slot, worker if followed else _neighbour(ring, 0))
    for slot in waiting:
        _hand_over(ring, slot, _neighbour(ring, worker if followed else 0))
    return bool(running)


def _neighbour(ring: Ring, otherwise: int) -> int:
    least = ring.least_loaded()
    return otherwise if least is None else least[0]


def _hand_over(ring: Ring, slot: int, worker: int) -> None:
    ring.slots[slot].handed_over()
    ring.hand_over("supervisor", slot, worker)
