"""Part that limits a load, by the stages of the receipts and the work of the sending processes. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from cluster_serving.client.servers.picture import Limit
from cluster_serving.node.load.windows import Window

_SENDER_BUSY = 0.9
_WORKERS_BUSY = 0.85
_KEPT_UP = 0.95  # share of the asked rate
_MOSTLY_FAILED = 0.5
_SENTENCES = {
    "stream": "wait in the stream: during the load `cluster-serving status` tells if reader, workers, Redis or machine are full",
    "queue": "wait in the stream and for their batch: add workers or nodes, or run `cluster-serving tune`",
    "fill": "wait in an open batch for a free worker: add workers or nodes, or run `cluster-serving tune`",
    "wait": "wait for a worker: add workers or nodes, or run `cluster-serving tune`",
    "run": "run in the model: more connections give more records a second, more cores shorter answers",
    "publish": "wait for the writer: make the outputs smaller (`topN`), or add nodes",
    "frontend": "are in the frontend: give it more processes (`workers`)",
    "client": "are on their way between client, Redis and node",
}


def limiting(
    windows: Sequence[Window], stages_ms: Mapping[str, float], rate: float | None, workers: int, connections: int
) -> Limit:
    """Return the part that limits a load.

    Args:
        windows: measured windows.
        stages_ms: mean milliseconds of each stage.
        rate: requests a second of an open loop. None: a closed loop.
        workers: number of workers of the job. 0: not known.
        connections: most requests under way.
    """
    seconds = sum(window.seconds for window in windows)
    answered = sum(window.took_s.size for window in windows)
    failed = sum(sum(window.failed.values()) for window in windows)
    busy = float(np.mean([window.busy for window in windows]))
    if busy >= _SENDER_BUSY:
        return Limit(
            "sender", f"The load generator uses {busy:.0%} of a core: give more --processes, or a machine of its own."
        )
    if all(window.is_behind for window in windows):
        if windows[-1].under_way >= connections:
            return Limit("connections", f"All {connections:,} connections are busy: the rate is above the capacity.")
        late_s = max(window.late_s for window in windows)
        return Limit(
            "sender",
            f"The load generator sends up to {late_s:.1f} s late: give more --processes, or a machine of its own.",
        )
    if failed > _MOSTLY_FAILED * (answered + failed):
        return Limit("errors", f"{failed:,} of {answered + failed:,} requests failed: see the errors.")
    if rate is not None and answered >= _KEPT_UP * rate * seconds:
        return Limit("rate", f"The job keeps up: {rate:,g} requests a second were asked for, and answered.")
    share = _busy_workers(windows, answered / seconds, workers)
    if share >= _WORKERS_BUSY:
        return Limit(
            "workers",
            f"The workers are busy {min(share, 1.0):.0%} of the time: add nodes, or run `cluster-serving tune`.",
        )
    if not stages_ms:
        return Limit("unknown", "The answers have no receipts, which would tell the stage that limits.")
    longest = max(stages_ms, key=lambda name: stages_ms[name])
    part = stages_ms[longest] / max(sum(stages_ms.values()), 1e-9)
    return Limit(longest, f"For {part:.0%} of the time records {_SENTENCES[longest]}.")


def _busy_workers(windows: Sequence[Window], rate: float, workers: int) -> float:
    """Return the share of the time that the workers work: a record's part of the run of its batch, times records a second."""
    batches = [sample for window in windows for sample in window.samples if sample.rows]
    if not batches or not workers:
        return 0.0
    run_ms = sum(sample.stages_ms["run"] for sample in batches) / sum(sample.rows for sample in batches)
    return run_ms / 1000 * rate / workers
