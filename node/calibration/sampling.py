"""Sampling of live records: until the sample is full, or for a time."""

import time
from collections.abc import Callable

from cluster_serving.client.servers.process.exit_codes import Fault
from cluster_serving.node.calibration.reservoir import Reservoir
from cluster_serving.node.engines.calibration import MOST_BYTES
from cluster_serving.node.shadow.live_records import LiveRecords

LONGEST_S = 600.0
_TURN_S = 0.002
_LOOK_S = 1.0


def sample(live: LiveRecords, reservoir: Reservoir, for_s: float | None, show: Callable[[], None]) -> None:
    """Fill a reservoir with live records.

    Args:
        live: records that come.
        reservoir: takes the sample.
        for_s: seconds to sample for. None: until the sample is full, at most `LONGEST_S`.
        show: called once a second.

    Raises:
        Fault: the node has changed or ended meanwhile, or the records are too large.
        UnequalRowsError: the records have different shapes.
    """
    begun_s = look_s = time.monotonic()
    while True:
        for row in live.rows(reservoir.draw):
            row_bytes = sum(array.nbytes for array in row.values())
            if row_bytes * reservoir.size > MOST_BYTES:
                raise Fault(
                    f"a record has {row_bytes / 1e6:.1f} MB, and {reservoir.size} of them are more than {MOST_BYTES >> 30} GiB: "
                    f"give --records {MOST_BYTES // row_bytes} or less"
                )
            reservoir.put(row)
        now_s = time.monotonic()
        if now_s >= begun_s + (LONGEST_S if for_s is None else for_s) or (for_s is None and reservoir.is_full):
            return
        if now_s >= look_s:
            if live.has_changed:
                raise Fault("the node has changed or ended while its records were sampled: try again")
            show()
            look_s = now_s + _LOOK_S
        time.sleep(_TURN_S)
