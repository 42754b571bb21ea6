"""Faults by chance on three real hosts, with replicas of Redis and the autoscaler: no record that was accepted is lost.

Each seed is a run of its own: `make test-swarm SWARM_TESTS=chaos SWARM_SEEDS=20`; `-s` shows the faults and the figures. The
manager of the Swarm stays: it is the only one that the lab has.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from support.swarm.callers import Callers, by_http
from support.swarm.lab import Lab
from support.swarm.replicas import HOSTS, host_of, is_whole, master, redis_cli, replicated, sending
from support.swarm.stack import Stack
from support.wait import wait_until

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(900)]

SEEDS = int(os.environ.get("SWARM_SEEDS", "1"))
FAULTS = 4
RUN_S = 0.2
"""Seconds of a batch, so that a node does 40 records a second."""
WAVE_S = 25
"""Seconds of the load in which one node is too few, and of the load after it, in which one is enough."""
RECOVERY_S = 120.0
MIN, MAX = 1, 3
AUTOSCALE = {"min": MIN, "max": MAX, "targetWait": 2, "scaleDownWindow": 10}

Fault = Callable[[Stack, Random], None]


@pytest.fixture(scope="module")
def stack(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with replicas and an autoscaler."""
    directory, settings = tmp_path_factory.mktemp("stack"), {"autoscale": AUTOSCALE}
    options = ("--with", "autoscale", "--nodes", "2", "--frontends", "3")
    with replicated(lab, directory, "shaken", *options, settings=settings) as stack:
        stack.let_in()
        yield stack


def lose_a_host(stack: Stack, chance: Random) -> None:
    """A host is without power, or off the network, for some seconds."""
    host, fault = chance.choice(["w1", "w2"]), chance.choice(["kill", "cut"])
    told(f"host {host}: {fault}")
    be_away(stack, fault, host, chance)


def lose_the_master(stack: Stack, chance: Random) -> None:
    """Redis' master, or its host, is killed or cut off."""
    lost = master(stack)
    faults = ["container"] if lost == "redis" else ["container", "kill", "cut"]
    fault = chance.choice(faults)
    told(f"master {lost}: {fault}")
    if fault == "container":
        end(stack, lost, chance)
    else:
        be_away(stack, fault, HOSTS[lost], chance)


def lose_containers(stack: Stack, chance: Random) -> None:
    """Some containers are killed, one soon after the other."""
    services = chance.sample(["node", "frontend", "autoscaler", "scaler", "redis-2", "sentinel", "sentinel-3"], 3)
    told(f"killed: {', '.join(services)}")
    for service in services:
        end(stack, service, chance)
        time.sleep(chance.uniform(0, 1))


def freeze_one(stack: Stack, chance: Random) -> None:
    """A container does nothing for some seconds; not that of the master, which may lose records with it (docs/how-to/redis.md)."""
    replica = next(service for service in HOSTS if service != master(stack))
    service = chance.choice(["node", "frontend", "autoscaler", "scaler", replica, "sentinel-2"])
    told(f"frozen: {service}")
    freeze(stack, service, chance)


def fail_over(stack: Stack, chance: Random) -> None:
    """An operator makes a replica the master, with writes held back, while a node is killed."""
    before = master(stack)
    told(f"failover of {before}, and a node killed")
    redis_cli(stack, before, "client", "pause", "5000", "write")
    redis_cli(stack, "sentinel", "sentinel", "failover", "serving")
    time.sleep(chance.uniform(0, 1))
    end(stack, "node", chance)


def be_away(stack: Stack, fault: str, host: str, chance: Random) -> None:
    """Kill a host or cut it off, and bring it back after some seconds."""
    stack.lab(fault, host)
    time.sleep(chance.uniform(1, 12))
    stack.lab("heal", host)


def containers(stack: Stack, service: str) -> list[tuple[str, str]]:
    """The containers of a service, each with its host."""
    hosts = [host_of(service)] if service.startswith(("redis", "sentinel")) else list(stack.lab.hosts)
    return [(host, container) for host in hosts for container in stack.containers(host, service)]


def end(stack: Stack, service: str, chance: Random) -> None:
    """Kill a container of a service, if there is one."""
    if found := containers(stack, service):
        host, container = chance.choice(found)
        stack.lab.tries("docker", host, "kill", container)


def freeze(stack: Stack, service: str, chance: Random) -> None:
    """Stop a container of a service for some seconds, if there is one."""
    if found := containers(stack, service):
        host, container = chance.choice(found)
        stack.lab.docker(host, "pause", container)
        time.sleep(chance.uniform(1, 12))
        stack.lab.tries("docker", host, "unpause", container)


def told(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}", flush=True)


def orders(stack: Stack) -> int:
    """Return how often the autoscaler has changed the number of nodes."""
    return stack.lab.docker("m1", "service", "logs", "--raw", f"{stack.name}_scaler").count("set the number of tasks")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_that_was_accepted_is_lost(stack: Stack, seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    every: list[Fault] = [lose_a_host, lose_the_master, lose_containers, freeze_one, fail_over]
    faults = [lose_the_master, *chance.choices(every, k=FAULTS - 1)]
    chance.shuffle(faults)
    print(f"\nseed {seed}")
    before, bounds, longest_s = orders(stack), set[int](), 0.0
    sender = ("majority", "--run", str(RUN_S), "--wave", str(WAVE_S))
    with (
        sending(stack, tmp_path, *sender) as sent,
        Callers(by_http(stack.http), threads=2, seconds=0.01) as posts,
    ):
        posts.await_answers(20)
        for fault in faults:
            time.sleep(chance.uniform(0, 5))
            fault(stack, chance)
            begun_s = time.monotonic()
            wait_until(lambda: is_whole(stack), "both replicas follow one master", RECOVERY_S)
            posts.await_answers(20)
            longest_s = max(longest_s, time.monotonic() - begun_s)
            bounds.add(stack.ordered())
    wait_until(lambda: len(stack.nodes()) == stack.ordered(), "as many nodes serve as are ordered", RECOVERY_S)

    print(
        f"whole and answering within {longest_s:.1f} s; {posts.answered.total()} POSTs, failed {failed(posts)}; accepted "
        f"{sent['accepted']}, not known {len(sent['unknown'])}, lost {sent['lost']}, gaps {sent['gaps']}; "
        f"nodes {sorted(bounds)}, {orders(stack) - before} orders"
    )
    assert sent["lost"] == []
    assert sent["wrong"] == []
    assert "wrong" not in posts.failures
    assert bounds <= set(range(MIN, MAX + 1))


def failed(posts: Callers) -> dict[str, int]:
    return {kind: len(said) for kind, said in posts.failures.items()}
