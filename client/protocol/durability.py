"""Durability of records: the number of copies in other Redis servers before a caller is told that a record is accepted.

Redis copies records to its replicas after it has answered. If its machine is lost in between, an accepted record is lost. With
`majority`, WAIT follows the records, and the caller is told once most of the servers have them. A failover makes the replica with
the most records the master, so that it has these.
"""

from collections.abc import Callable
from typing import Literal

from cluster_serving.client.errors import ConnectionLost, InvalidValue
from cluster_serving.client.redis_settings import RedisSettings

Durability = Literal["majority"]
Copies = Callable[[], int]
"""Returns the number of replicas that must have a record."""
WAIT_MS = 1000
"""Milliseconds that replicas have for a record."""


def check_durability(durability: str | None, settings: RedisSettings) -> Copies | None:
    """Return the number of copies to wait for, as it is when called, or None for no copies.

    Raises:
        InvalidValue: there is no such durability, or no Sentinel knows the replicas.
    """
    if durability is None:
        return None
    if durability != "majority":
        raise InvalidValue(f"durability is 'majority', not {durability!r}")
    if settings.sentinels is None:
        raise InvalidValue(
            "durability='majority' needs Sentinels, which know the replicas: url='redis+sentinel://host:26379,.../service'"
        )
    from cluster_serving.client.sentinels.master import Sentinels

    sentinels = Sentinels.of(settings.sentinels)
    return lambda: max(1, (1 + sentinels.replicas) // 2)


def not_copied(wanted: int, why: str) -> ConnectionLost:
    """Return the error for records that the master has and too few replicas."""
    return ConnectionLost(
        f"the master has the records, but not {wanted} of its replicas ({why}): a failover now may lose them"
    )
