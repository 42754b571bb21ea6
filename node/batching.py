"""When a batch leaves for a worker; pure.

A full batch leaves for a worker that has at most one other, so that it never waits for the next and none queues behind a
slow one. A partial batch leaves as soon as a worker is idle; while all are busy it goes on filling. So low load gives low
latency and high load full batches, without a timer.
"""

QUEUED_PER_WORKER = 2


def leaves(full: bool, least_load: int, age_ms: float, max_delay_ms: float) -> bool:
    """Whether a batch leaves now.

    Args:
        full: it can take no further row.
        least_load: how many batches the least loaded worker has.
        age_ms: since its first row.
        max_delay_ms: how long a partial batch may wait for more rows although a worker is idle.
    """
    if full:
        return least_load < QUEUED_PER_WORKER
    return least_load == 0 and age_ms >= max_delay_ms
