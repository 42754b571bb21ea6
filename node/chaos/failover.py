"""Planned failover of the run's Redis to a master whose clock is behind."""

import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import redis

from cluster_serving.client import keys

_AHEAD_MS: Final = 10_000
_SEEN_S: Final = 0.2  # clients that wait for an entry have it by then
_READ_ONLY_S: Final = 1.0
_BACK_IN_TIME: Final = Path(__file__).with_name("back_in_time.lua").read_text(encoding="utf-8")


def fail_over(client: "redis.Redis", job: str, but: Collection[bytes]) -> None:
    """Let Redis be a read-only replica for a second, then a master again, with a clock that is 10 s behind.

    The data stay, because the replica finds no master to copy from. Blocked readers get UNBLOCKED, writers READONLY. Clocks cannot
    be set back, but ids can: clients read an entry of 10 s ahead in their reply streams. The new master lacks the entry, and gives
    later entries smaller ids.

    Args:
        client: connection to the run's Redis.
        job: stream of the run.
        but: reply streams that keep their ids.
    """
    raw: Any = client
    ahead_ms = int(raw.time()[0]) * 1000 + _AHEAD_MS
    streams = [key for key in raw.scan_iter(keys.reply_key(job, "*"), count=1000, _type="stream") if key not in but]
    for stream in streams:
        with suppress(redis.ResponseError):  # on a busy machine, 10 s may have passed
            raw.xadd(stream, {keys.BATCH: b"{}"}, id=f"{ahead_ms}-0", nomkstream=True)
    time.sleep(_SEEN_S)
    raw.execute_command("REPLICAOF", "127.0.0.1", "1")
    try:
        time.sleep(_READ_ONLY_S)
    finally:
        raw.execute_command("REPLICAOF", "NO", "ONE")
    with raw.pipeline(transaction=True) as commands:  # no connection to the old master writes to the new one
        for stream in streams:
            commands.eval(_BACK_IN_TIME, 1, stream, ahead_ms)
        commands.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        commands.execute()
