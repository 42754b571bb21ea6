"""The figures of one open loop."""

from typing import NamedTuple

import numpy as np

from bench.load import Seconds, Trace
from bench.report import Figures

_LATE_S = 0.001
_BEHIND_S = 0.1
_QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p99_9_ms": 0.999}
_COMPUTED_TOO_LATE = b"before the result could be published"
_CLOCK_MS = 1.0  # the deadline is in whole milliseconds


class Computed(NamedTuple):
    """A record that a worker computed: ms of its run, and how late after its deadline that began and ended, on Redis' clock."""

    run_ms: float
    begun_late_ms: float
    ended_late_ms: float


def figures_of(trace: Trace, capacity_per_s: float, deadline_s: float | None) -> Figures:
    """Latencies without a deadline; with one, the goodput, and what was computed in vain."""
    late_s = trace.sent_s - trace.due_s
    figures: Figures = {
        "sent_per_s": np.count_nonzero(~np.isnan(trace.sent_s)) / _span_s(trace),
        "late_share": float(np.mean(~(late_s <= _LATE_S))),
        "most_late_ms": float(1000 * np.nanmax(late_s)),
        "refused": float(np.count_nonzero(np.isnan(trace.sent_s))),
    }
    if deadline_s is None:
        return figures | _latencies(trace)
    return figures | _goodput(trace, capacity_per_s, deadline_s) | _in_vain(trace)


def fell_behind(trace: Trace) -> bool:
    """Return whether the sender could not keep up: at the end it was later than at any pause of the machine, or all was refused."""
    late_s = (trace.sent_s - trace.due_s)[-max(1, trace.due_s.size // 10) :]
    return bool(np.nanmedian(late_s) > _BEHIND_S) if not np.isnan(late_s).all() else True


def latencies_s(trace: Trace) -> Seconds:
    """Of every request, sorted: from when it was due to its answer, or to the end of the load where there was none, or an error."""
    answered = ~np.isnan(trace.done_s) & ~trace.failed
    end_s = max(np.nanmax(trace.done_s, initial=0.0), trace.due_s[-1])
    return np.sort(np.where(answered, trace.done_s, end_s) - trace.due_s)


def computed(trace: Trace) -> list[Computed]:
    """The records with a deadline that a worker computed, by their receipts."""
    found: list[Computed] = []
    for answer in trace.answers:
        if answer.receipt is None or (answer.error and _COMPUTED_TOO_LATE not in answer.error):
            continue
        receipt = answer.receipt.joined()
        begun_ms = receipt.filled_ms + receipt.wait_ms - receipt.enqueued_ms - trace.life_ms[answer.number]
        found.append(Computed(receipt.run_ms, begun_ms, begun_ms + receipt.run_ms))
    return found


def _latencies(trace: Trace) -> Figures:
    found = latencies_s(trace)
    quantiles = {name: 1000 * found[min(int(q * found.size), found.size - 1)] for name, q in _QUANTILES.items()}
    failed = {"failed": float(trace.failed.sum()), "unanswered": float(np.isnan(trace.done_s).sum())}
    return {name: float(value) for name, value in quantiles.items()} | failed


def _goodput(trace: Trace, capacity_per_s: float, deadline_s: float) -> Figures:
    good = ~trace.failed & (trace.done_s - trace.due_s <= deadline_s)
    answered = ~trace.failed & ~np.isnan(trace.done_s)
    first_s, last_s = min(deadline_s, trace.due_s[-1] / 2), trace.due_s[-1]
    under_load = (trace.done_s >= first_s) & (trace.done_s <= last_s)
    full = capacity_per_s * (last_s - first_s)
    return {
        "goodput_of_capacity": float(np.count_nonzero(good & under_load) / full),
        "answered_of_capacity": float(np.count_nonzero(answered & under_load) / full),
    }


def _in_vain(trace: Trace) -> Figures:
    found = computed(trace)
    if not found:
        return {}
    run_ms = float(np.median([each.run_ms for each in found]))
    late_ms = [each.begun_late_ms for each in found if each.begun_late_ms > _CLOCK_MS]
    most_ms = max(late_ms, default=0.0)
    return {
        "batch_run_ms": run_ms,
        "begun_late": float(len(late_ms)),
        "begun_late_most_ms": most_ms,
        "begun_late_most_runs": most_ms / run_ms,
        "wasted_share": float(np.mean([each.ended_late_ms > _CLOCK_MS for each in found])),
    }


def _span_s(trace: Trace) -> float:
    """From the first request to the last one that was sent."""
    return max(float(np.nanmax(trace.sent_s)), float(trace.due_s[-1])) or 1.0
