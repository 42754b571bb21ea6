"""One turn of whoever has lanes: wait for a signal, a word or the death of a child, bury who has died, look after the rest."""

import select
from collections.abc import Sequence

from cluster_serving.node.bell import Bell
from cluster_serving.node.lane import Lane


def take_turn(lanes: Sequence[Lane], bell: Bell, longest_s: float) -> None:
    """Hear what children say, until the bell is rung or so many seconds are over; the dead are followed by others."""
    _wait(lanes, bell, longest_s)
    for lane in lanes:
        for child in list(lane.children()):
            reason = child.reap()
            if reason is not None:
                lane.bury(child, reason)
        lane.look_after()


def _wait(lanes: Sequence[Lane], bell: Bell, longest_s: float) -> None:
    children = [(child, lane) for lane in lanes for child in lane.children()]
    speaking = {child.fileno(): (child, lane) for child, lane in children if child.booting}
    poll = select.poll()
    for descriptor in (bell.fileno(), *speaking, *(child.death_fd for child, _ in children)):
        poll.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poll.poll(longest_s * 1000)}
    if bell.fileno() in ready:
        bell.hear()
    for descriptor in speaking.keys() & ready:
        child, lane = speaking[descriptor]
        lane.hear(child)
