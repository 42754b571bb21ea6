"""A master behind Sentinels that fails: how long answers fail to come, and how many accepted records are lost.

Three Redis, three Sentinels that take a master for dead after 2 s, a node, a frontend, new ones for each kind of failure:

    killed          SIGKILL for the master
    hung            SIGSTOP for the master, for 10 s
    planned         SENTINEL FAILOVER; the former master goes on as one for ten seconds
    planned_safe    the same, with `min-replicas-to-write 1`
    machine_killed  SIGKILL for the master and the first Sentinel
    machine_hung    SIGSTOP for both

The gaps are the longest times without a right answer from the failure on: of a program that runs, of programs that are started
all the time, and of an HTTP client. A part of each gap is the time until the Sentinels name the new master (`promoted`). Redis
copies records to replicas after it has accepted them, so that the last records are lost with the master. A record is `safe` once
WAIT has told that both replicas have it. `followed` is the time from the naming until node, frontend and programs have left a
former master that still works.
Run it by `python -m bench.failover [--kinds NAME ...] [--json FILE]`, 30 s a kind; it exits with 1 when an answer is wrong, a safe
record is lost, a gap is longer than 6 s (10 s for a machine that hangs; 1 s more over HTTP), or a plan is not followed within 2 s.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from rich.console import Console
from rich.table import Table

from bench import report
from bench.failover_callers import Http, Records, Running, Starting
from bench.failover_servers import Servers, servers
from cluster_serving.node.load.machine import machine

_QUIET_S = 3.0
_WATCH_S = 15.0
_HUNG_S = 10.0
_GAP_S = 6.0
_MACHINE_GAP_S = 10.0
_HTTP_MORE_S = 1.0
_FOLLOWED_S = 2.0
_COLUMNS = {
    "promoted_s": "promoted",
    "running_s": "running",
    "starting_s": "new",
    "http_s": "HTTP",
    "followed_s": "followed",
    "lost": "lost",
    "lost_safe": "safe",
}


@dataclass(frozen=True)
class Failure:
    """A kind of failure: how it is made, the options of each Redis, and the longest gap that is allowed."""

    make: Callable[[Servers], None]
    options: tuple[str, ...] = ()
    gap_s: float = _GAP_S


def _leave(*_signal: object) -> None:
    sys.exit("terminated")  # not at once, so that the servers end too


def _kill(servers: Servers) -> None:
    servers.redis[0].send(signal.SIGKILL)


def _hang(servers: Servers) -> None:
    servers.redis[0].send(signal.SIGSTOP)


def _kill_machine(servers: Servers) -> None:
    _kill(servers)
    servers.sentinels[0].send(signal.SIGKILL)


def _hang_machine(servers: Servers) -> None:
    _hang(servers)
    servers.sentinels[0].send(signal.SIGSTOP)


FAILURES = {
    "killed": Failure(_kill),
    "hung": Failure(_hang),
    "planned": Failure(Servers.plan),
    "planned_safe": Failure(Servers.plan, ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "3")),
    "machine_killed": Failure(_kill_machine),
    "machine_hung": Failure(_hang_machine, gap_s=_MACHINE_GAP_S),
}


def main() -> int:
    """Measure every kind, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=FAILURES, default=list(FAILURES))
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _leave)
    figures: report.Figures = {}
    problems: list[str] = []
    table = Table("failure", title="A master behind Sentinels that fails", title_justify="left")
    for heading in _COLUMNS.values():
        table.add_column(heading, justify="right")
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(prefix="cluster-serving-bench-") as home:
            found = measure(Path(home), kind)
        table.add_row(kind, *(report.number(found[name]) if name in found else "" for name in _COLUMNS))
        problems += complaints(kind, found)
        figures |= {f"failover.{kind}.{name}": value for name, value in found.items()}
    table.caption = f"seconds; lost records, and how many of them both replicas had; {machine()}"
    Console().print(table)
    report.write(options.json, [figures])
    print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


def measure(home: Path, kind: str) -> report.Figures:
    """Load servers of their own, make them fail, and say what came of it."""
    failure = FAILURES[kind]
    with servers(home, *failure.options) as stage:
        callers = {"running": Running(), "starting": Starting(), "http": Http()}
        records = Records(stage.copied)
        for caller in (*callers.values(), records):
            caller.start()
        time.sleep(_QUIET_S)
        failed_s = time.monotonic()
        failure.make(stage)
        times_s = watch(stage, kind, failed_s)
        ended_s = time.monotonic()
        for caller in (*callers.values(), records):
            caller.stop()
    gaps_s = {f"{name}_s": caller.gap_s(failed_s, ended_s) for name, caller in callers.items()}
    failed = {f"{name}_failed": float(caller.failed) for name, caller in callers.items()}
    return {
        **times_s,
        **gaps_s,
        **failed,
        "accepted": float(len(records.accepted)),
        "lost": float(len(records.lost)),
        "lost_safe": float(records.lost_safe),
        "wrong": float(sum(caller.wrong for caller in (*callers.values(), records))),
    }


def watch(stage: Servers, kind: str, failed_s: float) -> report.Figures:
    """Wait for the end of the failure; when the Sentinels named another master, and when the former one was left."""
    times_s: report.Figures = {}
    hung = kind == "hung"
    while (passed_s := time.monotonic() - failed_s) < _WATCH_S:
        if hung and passed_s > _HUNG_S:
            hung = False
            stage.redis[0].send(signal.SIGCONT)
        if "promoted_s" not in times_s:
            if stage.has_new_master():
                times_s["promoted_s"] = time.monotonic() - failed_s
        elif kind.startswith("planned") and "followed_s" not in times_s:
            with suppress(redis.RedisError):
                if stage.is_left():
                    times_s["followed_s"] = time.monotonic() - failed_s - times_s["promoted_s"]
        time.sleep(0.02)
    return times_s


def complaints(kind: str, found: report.Figures) -> list[str]:
    """Return what is not as it should be."""
    most_s = FAILURES[kind].gap_s
    allowed = {
        "running_s": most_s,
        "starting_s": most_s,
        "http_s": most_s + _HTTP_MORE_S,
        "lost_safe": 0,
        "wrong": 0,
    }
    if kind.startswith("planned"):
        allowed["followed_s"] = _FOLLOWED_S
    return [
        f"{kind}: {name} is {found.get(name, float('inf')):.3g}, more than {most:g}"
        for name, most in allowed.items()
        if not found.get(name, float("inf")) <= most
    ]


if __name__ == "__main__":
    sys.exit(main())
