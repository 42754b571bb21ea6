"""The autoscaler of a stack on three real hosts: the load rises and falls, and Redis and the scaler are away.

`-s` shows the figures. They are of one machine that plays three: nothing here asserts that it is fast.
"""

import math
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random

import pytest

from support.swarm import images
from support.swarm.callers import Callers, by_http
from support.swarm.lab import Lab
from support.swarm.load import Load
from support.swarm.stack import OVERRIDE, Stack, deployed
from support.wait import wait_until

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(600)]

IMAGES = ("--node-image", images.node_image("1"), "--frontend-image", images.FRONTEND)
RUN_S = 0.2
"""Seconds of a batch, so that a node does 40 records a second."""
AWAY_S = 60.0
WINDOW_S = int(os.environ.get("SWARM_WINDOW", "20"))
"""`scaleDownWindow`, by default 300 s: with 20 s, chances that change each 5 s are no short peaks any more."""
LONG_S = 60 * float(os.environ.get("SWARM_MINUTES", "4"))
"""Time of a load that changes all the time; what is promised is of ten minutes."""
PERIOD_S = 120.0
AUTOSCALE = {"min": 0, "max": 3, "targetWait": 5, "scaleDownWindow": WINDOW_S, "frontendsMax": 3, "frontendRequests": 4}


@pytest.fixture(scope="module")
def stack(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with an autoscaler; one node."""
    settings = {"autoscale": AUTOSCALE}
    with deployed(lab, tmp_path_factory.mktemp("stack"), "scaled", OVERRIDE, settings=settings) as stack:
        stack.deploy("--with", "autoscale", "--nodes", "1", "--frontends", "1", *IMAGES)
        stack.let_in()
        yield stack


def said(stack: Stack) -> str:
    """The log of the autoscaler."""
    return stack.lab.docker("m1", "service", "logs", "--raw", f"{stack.name}_autoscaler")


def load_of(stack: Stack, rate: float) -> Load:
    return Load(stack.redis, stack.client, seconds=RUN_S, rate=rate, waiting=10_000)


def test_nodes_follow_the_load_down_to_none_and_up_again_and_lose_nothing(stack: Stack) -> None:
    with load_of(stack, 60) as load:
        load.await_answers(300)  # full batches, from which the speed of a node is learned
        load.rate = 20
        wait_until(lambda: stack.ordered() == 1 and len(stack.nodes()) == 1, "one node is enough", 180)
        load.await_answers(60)
        load.rate = 80
        risen_s = time.monotonic()
        wait_until(lambda: stack.ordered() == 3, "three nodes are ordered", 60)
        ordered_s = time.monotonic() - risen_s
        stack.await_nodes(3)
        ready_s = time.monotonic() - risen_s
        load.await_answers(800)
        load.settle()
    fallen_s = time.monotonic()
    wait_until(lambda: stack.ordered() == 0, "no node is wanted", 300)
    wait_until(lambda: not any(stack.containers(host, "node") for host in stack.lab.hosts), "no node is left", 120)
    asleep_s = time.monotonic() - fallen_s
    with load_of(stack, 10) as load:
        woken_s = time.monotonic()
        load.await_answers(1, timeout_s=120)
        print(
            f"\nload x 4: three nodes ordered after {ordered_s:.1f} s, ready after {ready_s:.1f} s; load gone: none after "
            f"{asleep_s:.0f} s; the first record answered after {time.monotonic() - woken_s:.1f} s\n{said(stack)}"
        )
        load.settle()


def test_frontends_follow_their_open_requests_and_fail_none(stack: Stack) -> None:
    with load_of(stack, 10) as load:
        load.await_answers(1, timeout_s=120)
        wait_until(lambda: bool(stack.nodes()), "a node is ready", 60)
        with Callers(by_http(stack.http), threads=10, seconds=RUN_S) as posts:
            begun_s = time.monotonic()
            wait_until(lambda: stack.ordered("frontend") == 3, "three frontends are ordered", 120)
            ordered_s = time.monotonic() - begun_s
            wait_until(lambda: all(stack.containers(host, "frontend") for host in stack.lab.hosts), "they run", 60)
            served = posts.answered.total()
            wait_until(lambda: posts.answered.total() > served + 50, "they answer", 60)
        fallen_s = time.monotonic()
        wait_until(lambda: stack.ordered("frontend") == 1, "one frontend is enough", 180)
        print(
            f"\nten callers: three frontends ordered after {ordered_s:.1f} s; none: one after {time.monotonic() - fallen_s:.0f} s; "
            f"{posts.answered.total()} POSTs, failed: {posts.failed or 'none'}"
        )
        load.settle()

    assert posts.failed == []


def test_nothing_is_done_while_redis_or_the_scaler_is_away(stack: Stack) -> None:
    docker = stack.lab.docker
    with load_of(stack, 20) as load:
        load.await_answers(40)
        wait_until(lambda: stack.nodes() and stack.ordered() == len(stack.nodes()), "no node is starting", 120)
        docker("m1", "service", "scale", "--detach", f"{stack.name}_redis=0")
        wait_until(lambda: "left alone" in said(stack).splitlines()[-1], "the autoscaler knows that Redis is away", 60)
        before, lines = stack.ordered(), len(said(stack).splitlines())
        time.sleep(max(AWAY_S, 2 * WINDOW_S))
        after, done = stack.ordered(), said(stack).splitlines()[lines:]
        docker("m1", "service", "scale", "--detach", f"{stack.name}_redis=1")
        wait_until(lambda: "left alone" not in said(stack).splitlines()[-1], "the autoscaler goes on", 120)

        (scaler,) = stack.containers("m1", "scaler")
        docker("m1", "pause", scaler)
        wait_until(lambda: "the scaler at" in said(stack).splitlines()[-1], "the autoscaler misses the scaler", 60)
        docker("m1", "unpause", scaler)
        wait_until(lambda: "left alone" not in said(stack).splitlines()[-1], "the autoscaler goes on again", 120)
        load.await_answers(40)
        load.settle()

    assert after == before
    assert all("left alone" in line for line in done)


def periodic(now_s: float) -> float:
    """Records a second that rise and fall between what one node can do and what three can."""
    return 50 + 40 * math.sin(2 * math.pi * now_s / PERIOD_S)


def noisy(now_s: float) -> float:
    """Records a second that one or two nodes can do, with another chance each five seconds."""
    return Random(int(now_s / 5)).lognormvariate(math.log(45), 0.5)


@pytest.mark.timeout(LONG_S + 600)
@pytest.mark.parametrize("rate", [periodic, noisy])
def test_the_number_of_nodes_turns_back_seldom(stack: Stack, rate: Callable[[float], float]) -> None:
    counts: list[int] = []
    with load_of(stack, 10) as load:
        load.await_answers(1, timeout_s=120)
        begun_s = time.monotonic()
        while (now_s := time.monotonic() - begun_s) < LONG_S:
            load.rate = rate(now_s)
            counts.append(stack.ordered())
            time.sleep(2)
        load.settle()
    steps = [after - before for before, after in pairwise(counts) if after != before]
    back = sum(before * after < 0 for before, after in pairwise(steps))
    print(
        f"\n{rate.__name__} load for {LONG_S:.0f} s: nodes {min(counts)} to {max(counts)}, {len(steps)} changes, {back} back; "
        f"{len(load.history.outcomes)} records answered"
    )

    assert back <= 2 * LONG_S / PERIOD_S
