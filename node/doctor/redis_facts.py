"""Facts about a Redis: its own words, and round trips measured from this machine."""

import shlex
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import redis

from cluster_serving.client.protocol.resp import refuses_writes
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.topology import cpulist

_ROUNDS = 40
_ROUNDS_S = 0.3
_SLOW_ENTRIES = 32


class SlowCommand(NamedTuple):
    """Entry of the slow log, without the arguments, which may be anybody's data. `age_s`: seconds since its start."""

    name: str
    took_s: float
    age_s: float


class RedisFacts(NamedTuple):
    """Facts about a Redis that answers.

    Attributes:
        where: address for people, without secrets.
        remote: the server is reached over a network.
        has_login: the connection has a password.
        info: answer to INFO. Empty: the user may not ask.
        config: answers to CONFIG GET. Empty: the user may not ask.
        round_trip_s: median of the measured round trips in seconds.
        slowest_s: the slowest of the round trips.
        skew_s: clock of Redis minus clock of this machine. None: the user may not ask.
        slow: newest entries of the slow log. None: the user may not ask.
        overcommit: `vm.overcommit_memory` of this machine. Empty: Redis runs elsewhere.
        huge_pages: huge pages of the process of Redis: `always`, or else. Empty: Redis runs elsewhere.
        memory_total: memory of the machine in bytes. 0: not known.
    """

    where: str
    remote: bool
    has_login: bool
    info: Mapping[str, Any]
    config: Mapping[str, str]
    round_trip_s: float
    slowest_s: float
    skew_s: float | None
    slow: tuple[SlowCommand, ...] | None
    overcommit: str = ""
    huge_pages: str = ""
    memory_total: int = 0

    @property
    def cli(self) -> str:
        """Words of a command line that reach the server. The password is asked for, or stands in REDISCLI_AUTH."""
        if self.where.startswith("unix://"):
            return shlex.join(["redis-cli", "-s", self.where.removeprefix("unix://").partition("?")[0]])
        return "redis-cli" if "+sentinel" in self.where else shlex.join(["redis-cli", "-u", self.where])

    @property
    def server(self) -> str:
        """Name and version of the server."""
        valkey = self.info.get("valkey_version")
        return f"Valkey {valkey}" if valkey else f"Redis {self.info.get('redis_version', '?')}"


def read_redis(settings: RedisSettings, root: Path = Path("/")) -> RedisFacts:
    """Ask a Redis for its facts. No key is read or written.

    Raises:
        redis.RedisError: the server does not answer, or refuses the login.
    """
    with settings.client() as client:
        _ping(client)
        info: dict[str, Any] = {}
        with suppress(redis.ResponseError):
            info = dict(client.info())
        config: dict[str, str] = {}
        with suppress(redis.ResponseError):
            for pattern in ("append*", "save", "stop-writes-on-bgsave-error", "bind", "requirepass"):
                config |= {_text(key): _text(value) for key, value in client.config_get(pattern).items()}
        secured = bool(config.pop("requirepass", "")) or bool(settings.password)
        trips, skews = _measure(client)
        slow = _slow_log(client)
    here = on_this_machine(settings)
    overcommit, huge_pages = _of_host(info, root) if here else ("", "")
    return RedisFacts(
        where=settings.describe(),
        remote=not here,
        has_login=secured,
        info=info,
        config=config,
        round_trip_s=statistics.median(trips),
        slowest_s=max(trips),
        skew_s=statistics.median(skews) if skews else None,
        slow=slow,
        overcommit=overcommit,
        huge_pages=huge_pages,
        memory_total=int(info.get("total_system_memory", 0)),
    )


def _ping(client: redis.Redis) -> None:
    """Wait for an answer. A Redis that cannot write its files refuses PING too."""
    try:
        client.ping()
    except redis.ResponseError as error:
        if not refuses_writes(error):
            raise


def _measure(client: redis.Redis) -> tuple[list[float], list[float]]:
    """Return round trips, and differences of the clocks with the middle of each round trip, in seconds."""
    trips: list[float] = []
    skews: list[float] = []
    end_s = time.monotonic() + _ROUNDS_S
    while len(trips) < _ROUNDS and (not trips or time.monotonic() < end_s):
        began_s, began = time.perf_counter(), time.time()
        try:
            answer: Any = client.time()
        except redis.ResponseError:
            _ping(client)
            answer = None
        trips.append(time.perf_counter() - began_s)
        if answer is not None:
            skews.append(answer[0] + answer[1] / 1e6 - began - trips[-1] / 2)
    return trips, skews


def _slow_log(client: redis.Redis) -> tuple[SlowCommand, ...] | None:
    with suppress(redis.ResponseError):
        entries: Any = client.slowlog_get(_SLOW_ENTRIES)
        return tuple(
            SlowCommand(
                _text(entry["command"]).split(" ", 1)[0].upper(),
                entry["duration"] / 1e6,
                max(0.0, time.time() - entry["start_time"]),
            )
            for entry in entries
        )
    return None


def on_this_machine(settings: RedisSettings) -> bool:
    """Return whether an address is reached without a network."""
    if settings.unix_path:
        return True
    return settings.sentinels is None and (settings.host in ("localhost", "::1") or settings.host.startswith("127."))


def _of_host(info: Mapping[str, Any], root: Path) -> tuple[str, str]:
    """Return overcommit and huge pages, if the process of Redis is one that this process can see."""
    process = root / f"proc/{info.get('process_id', 0)}"
    if not cpulist.text_of(process / "comm").startswith(("redis", "valkey", "io_thd", "bio")):
        return "", ""
    pages = cpulist.text_of(root / "sys/kernel/mm/transparent_hugepage/enabled").partition("[")[2].partition("]")[0]
    if "THP_enabled:\t0" in cpulist.text_of(process / "status"):  # switched off by the server itself
        pages = "never"
    return cpulist.text_of(root / "proc/sys/vm/overcommit_memory"), pages


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
