"""Pace of a run: node settings that make faults matter within seconds, and the times that depend on the settings."""

from typing import Final

LEASE_S: Final = 2.0
"""`lease` of both nodes."""
PAUSE_S: Final = 3.0
"""Seconds of a pause. Longer than the lease: the second node takes over while the paused node still believes in its lease."""
SLOW_S: Final = 4.0
"""Seconds that a slow record takes: two leases, so that the record runs twice if its lease is not renewed."""
RUN_TIMEOUT_S: Final = 6.0
"""`runTimeout`. Longer than a slow record takes, and short, because a hanging record is waited for in each half of its batch."""
BATCH: Final = 8
"""Largest `batchSize`. A culprit is found in log2(batch size) runs."""
WORKERS: Final = 2
"""Largest number of workers per node."""
DRAIN_S: Final = 8.0
"""`drainTimeout`. A slow record may be under way when a node is told to stop."""
AWAY_S: Final = 0.7
"""Seconds until Redis is started again after it was killed."""
READY_S: Final = 600.0
"""Longest time in seconds for a node to load its model."""
SETTLE_S: Final = 90.0
"""Longest wait in seconds for the last answers after all faults: hanging records are still being isolated, restarts back off."""
STARTS: Final = 6
"""Multiple of the nodes' start time, added to `SETTLE_S`: a crashing record costs that many loads of the model."""
REPLY_LIFE_S: Final = 2.0
"""Seconds that a reply stream outlives the last sign of a client that does not pause. Shorter than a pause."""
CLOCK_S: Final = 3600.0
"""Seconds by which a node's clock is set forward. Longer than any record may wait."""
