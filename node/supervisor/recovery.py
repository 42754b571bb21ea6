"""Recovery of the slots of a worker that has ended: every slot finds a worker again.

`ring/isolation.py` decides which rows of an interrupted batch run next.
"""

from cluster_serving.node.ring.ring import Ring, State


def recover(ring: Ring, worker: int, followed: bool, error: tuple[str, str], stacks: str = "") -> bool:
    """Leave running slots to the worker's successor, hand waiting slots to neighbours, and hand no more slots to the worker.

    A batch that killed a worker must not kill its neighbours, because a lane without living workers stands still. A neighbour
    gets the batch only if the dead worker is not `followed` by a successor.

    Args:
        ring: ring of the lane.
        worker: index of the worker that has ended.
        followed: whether a successor will take the worker's place.
        error: error for a record that ran alone in two runs and killed the worker in both.
        stacks: stacks of a worker that hung.

    Returns:
        True if a run was interrupted.
    """
    ring.set_serving(worker, False)
    running, waiting = ring.owned(worker, State.RUNNING), ring.owned(worker, State.READY)
    for slot in running:
        ring.slots[slot].worker_died(error, stacks)
        ring.hand_over("supervisor", slot, worker if followed else _neighbour(ring, 0))
    for slot in waiting:
        ring.hand_over("supervisor", slot, _neighbour(ring, worker if followed else 0))
    return bool(running)


def _neighbour(ring: Ring, otherwise: int) -> int:
    least = ring.least_loaded()
    return otherwise if least is None else least[0]
