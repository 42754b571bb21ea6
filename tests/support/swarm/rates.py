"""Figures of a load: how fast nodes were, and when they were so again. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

_BIN_S = 1.0
_BINS = 3
_SHARE = 0.9


def throughput(done: Iterable[tuple[str, float]], from_s: float, to_s: float) -> Mapping[str, float]:
    """Records a second of each node within a window: those after its first batch, by the time from that batch to its last.

    Args:
        done: the node of each record and when its batch was done; all records of a batch say the same.
        from_s: begin of the window.
        to_s: its end.
    """
    batches: dict[str, Counter[float]] = defaultdict(Counter)
    for node, done_s in done:
        if from_s <= done_s <= to_s:
            batches[node][round(done_s, 3)] += 1
    return {
        node: (sum(rows.values()) - rows[min(rows)]) / (max(rows) - min(rows))
        for node, rows in batches.items()
        if len(rows) > 1
    }


def full_again_s(seen: Iterable[float], fault_s: float, rate: float) -> float:
    """Seconds from a fault until answers came as fast as records did, and for three seconds on end.

    Args:
        seen: when each answer was seen.
        fault_s: when the fault was, by the same clock.
        rate: of the records, a second.

    Returns:
        The end of the first of these seconds; 0 while there are none, or while the fault has not been felt yet.
    """
    bins = Counter(int((each - fault_s) // _BIN_S) for each in seen if each >= fault_s)
    full = [bins[index] >= _SHARE * rate * _BIN_S for index in range(max(bins, default=0))]  # the last is not over
    felt = full.index(False) if False in full else len(full)
    for index in range(felt, len(full) - _BINS + 1):
        if all(full[index : index + _BINS]):
            return (index + 1) * _BIN_S
    return 0.0
