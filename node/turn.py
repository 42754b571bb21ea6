"""One turn of whoever has lanes: wait for a signal, a word or the death of a child, bury who has died, look after the rest."""

import select
from collections.abc import Sequence

from cluster_serving.node.lanes import Lanes
from cluster_serving.node.ring.bell import Bell


def take_turn(generations: Sequence[Lanes], bell: Bell, longest_s: float) -> None:
    """Hear what children say, until the bell is rung or so many seconds are over; the dead are followed by others."""
    _wait(generations, bell, longest_s)
    for lanes in generations:
        for child in list(lanes.children()):
            reason = child.reap()
            if reason is not None:
                lanes.bury(child, reason)
        lanes.look_after()


def _wait(generations: Sequence[Lanes], bell: Bell, longest_s: float) -> None:
    children = [(child, lanes) for lanes in generations for child in lanes.children()]
    speaking = {child.fileno(): (child, lanes) for child, lanes in children if child.booting}
    poll = select.poll()
    for descriptor in (bell.fileno(), *speaking, *(child.death_fd for child, _ in children)):
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(longest_s * 1000)}
    if bell.fileno() in ready:
        bell.hear()
    for descriptor in speaking.keys() & ready:
        child, lanes = speaking[descriptor]
        lanes.hear(child)
