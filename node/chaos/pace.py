"""How fast a run goes: settings of its nodes that make faults matter within seconds, and what depends on them."""

from typing import Final

LEASE_S: Final = 2.0
"""`lease` of both nodes."""
PAUSE_S: Final = 3.0
"""A pause: longer than the lease, so that the other node takes over while the paused one still believes that it owns."""
SLOW_S: Final = 4.0
"""What a slow record takes: two leases, so that it is run twice if its lease is not renewed."""
RUN_TIMEOUT_S: Final = 6.0
"""`runTimeout`: more than a slow record takes, and little, because a hanging one is waited for in each half of its batch."""
BATCH: Final = 8
"""Largest `batchSize`: a culprit is found in log2 of it runs."""
WORKERS: Final = 2
"""Most workers of a node."""
DRAIN_S: Final = 8.0
"""`drainTimeout`: a slow record may be under way when a node is told to stop."""
AWAY_S: Final = 0.7
"""How long Redis stays away after it was killed."""
READY_S: Final = 600.0
"""How long a node may take to load its model."""
SETTLE_S: Final = 90.0
"""How long the last answers may take when all faults are over: a hanging record is still being isolated, and restarts back off."""
STARTS: Final = 6
"""How many times as long as the nodes took to start comes on top: a crashing record costs so many loads of the model."""
