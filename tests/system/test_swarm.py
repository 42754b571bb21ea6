"""A stack on three real hosts, under load, while it is deployed, scaled and changed, and while hosts and Redis are lost.

`-s` shows the figures. They are of one machine that plays three: nothing here asserts that it is fast, but for the ratio of two
rates of one run.
"""

import json
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from cluster_serving import __version__
from cluster_serving.client import InputQueue
from support.swarm import images
from support.swarm.callers import Callers, by_client, by_http
from support.swarm.lab import Lab
from support.swarm.load import Load
from support.swarm.rates import full_again_s, throughput
from support.swarm.stack import BATCH, OVERRIDE, Stack, deployed
from support.wait import wait_until

pytestmark = [pytest.mark.swarm, pytest.mark.timeout(600)]

IMAGES = ("--node-image", images.node_image("1"), "--frontend-image", images.FRONTEND)
ASK = """
from urllib.request import urlopen
url = "http://127.0.0.1:10020/v1/models/serving_stream:predict"
print(urlopen(url, b'{"instances": [{"x": [0, 7]}]}').read().decode())
"""
ADDRESS = "{{.Endpoint.Spec.Mode}} {{(index .Endpoint.Ports 0).PublishMode}}"
WANTED_IMAGE = "{{.Spec.TaskTemplate.ContainerSpec.Image}}"
RECOVERY_S = 120.0
"""Longest time in seconds that a lost host may be felt; the promise is 30 s, on machines that do nothing else."""


class Traffic(NamedTuple):
    """All that goes through the stack at once."""

    load: Load
    predicts: Callers
    posts: Callers

    @property
    def failed(self) -> list[str]:
        """Every call that failed."""
        return self.predicts.failed + self.posts.failed

    def versions(self) -> set[int]:
        """The versions of the model that have answered calls."""
        return {*self.predicts.answered, *self.posts.answered}


@pytest.fixture(scope="module")
def stack(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack that all tests use; deployed until it answers."""
    with deployed(lab, tmp_path_factory.mktemp("stack"), "systemtest", OVERRIDE) as stack:
        begun_s = time.monotonic()
        stack.deploy("--nodes", "1", *IMAGES)
        commanded_s = time.monotonic() - begun_s
        answer = by_http(stack.http)(0.0, 7)
        print(f"\ndeployed after {commanded_s:.1f} s, first answer after {time.monotonic() - begun_s:.1f} s")
        assert list(answer) == [7, 1]
        stack.let_in()
        yield stack


@contextmanager
def traffic(stack: Stack, *, seconds: float = 0.05, rate: float = 40) -> Generator[Traffic]:
    """A constant load: a program that enqueues, programs that wait for predictions, and HTTP.

    At the end of the block all that was accepted is waited for, and every outcome checked.
    """
    with (
        InputQueue(**stack.client) as queue,
        Load(stack.redis, stack.client, seconds=seconds, rate=rate, waiting=10_000) as load,
        Callers(by_client(queue), threads=2, seconds=seconds) as predicts,
        Callers(by_http(stack.http), threads=3, seconds=seconds) as posts,
    ):
        load.await_answers(int(3 * rate))
        yield Traffic(load, predicts, posts)
        predicts.cease()
        posts.cease()
        load.settle()


def told(what: str, flows: Traffic) -> None:
    """Print what went through."""
    kinds = {kind: len(said) for each in (flows.predicts, flows.posts) for kind, said in each.failures.items()}
    history = flows.load.history
    print(
        f"\n{what}: {len(history.records)} records, {history.accepted} accepted, {flows.predicts.answered.total()} predictions, "
        f"{flows.posts.answered.total()} POSTs; failed: {kinds or 'none'}; "
        f"slowest {flows.predicts.slowest_s:.1f} and {flows.posts.slowest_s:.1f} s"
    )


def test_the_stack_file_as_it_is_makes_a_stack_for_an_ordinary_swarm(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With virtual addresses and ports on all hosts, which lead nowhere here: it is asked from inside."""
    with deployed(lab, tmp_path_factory.mktemp("ordinary"), "ordinary") as stack:
        stack.deploy("--nodes", "1", "--port", "10921", *IMAGES)

        assert stack.told("frontend", ADDRESS) == "vip ingress"
        host, container = next((host, found) for host in lab.hosts for found in stack.containers(host, "frontend"))
        answer = lab.docker(host, "exec", container, "python", "-c", ASK)
        assert json.loads(answer) == {"predictions": [[7, 1]]}


def test_more_nodes_are_that_much_faster_and_fewer_lose_nothing(stack: Stack) -> None:
    stack.scale(1)
    with Load(stack.redis, stack.client, seconds=0.2, rate=1000, waiting=240) as load:
        one = rate_of(load, 1)
        stack.scale(3)
        three = rate_of(load, 3)
        stack.scale(1)
        load.await_answers(10 * BATCH)
        load.settle()

    print(f"\n1 node: {one:.1f} records/s; 3 nodes: {three:.1f}, {three / (3 * one):.3f} of three times as many")
    assert three >= 0.95 * 3 * one


def rate_of(load: Load, nodes: int) -> float:
    """Records a second of all nodes, over thirty batches of each."""
    load.await_answers(4 * BATCH * nodes)
    from_s = time.time()
    load.await_answers(30 * BATCH * nodes)
    done = [(each.node, each.done_s) for each in list(load.book.answered.values())]
    rates = throughput(done, from_s, time.time())
    assert len(rates) == nodes
    return sum(rates.values())


def test_new_images_are_rolled_out_without_a_failed_request(stack: Stack) -> None:
    stack.scale(2)
    with traffic(stack) as flows:
        stack.deploy("--node-image", images.node_image("2"), "--frontend-image", images.FRONTEND_2)
        flows.load.await_answers(80)

    told("images rolled out", flows)
    assert flows.failed == []
    assert flows.versions() == {1, 2}
    assert stack.told("frontend", WANTED_IMAGE) == images.FRONTEND_2


def test_a_release_and_the_one_before_take_turns_without_a_failed_request(stack: Stack) -> None:
    """Nodes and frontends one after the other, with programs of this release all the time."""
    stack.scale(2)
    seen: list[set[str | None]] = []
    with traffic(stack) as flows:
        for node, frontend in ((images.FORMER_NODE, images.FORMER_FRONTEND), (images.node_image("1"), images.FRONTEND)):
            stack.deploy("--node-image", node, "--frontend-image", frontend)
            flows.load.await_answers(80)
            seen.append(stack.versions())

    told("releases took turns", flows)
    assert flows.failed == []
    assert seen == [{None}, {__version__}]


def test_a_broken_image_is_rolled_back_without_a_failed_request(stack: Stack) -> None:
    stack.scale(2)
    before = stack.told("node", WANTED_IMAGE)
    with traffic(stack) as flows:
        printed = stack.deploy("--node-image", images.node_image("broken"), fails=True)
        flows.load.await_answers(80)

    told("broken image rolled back", flows)
    assert flows.failed == []
    assert "the model cannot be loaded" in printed
    assert stack.told("node", WANTED_IMAGE) == before


def test_a_new_model_is_rolled_out_without_a_failed_request(stack: Stack) -> None:
    stack.scale(2)
    with traffic(stack) as flows:
        stack.swarm("update-model", "/models/3")
        flows.load.await_answers(80)

    told("model rolled out", flows)
    assert flows.failed == []
    assert 3 in flows.versions()


@pytest.fixture
def spread(stack: Stack) -> Iterator[Stack]:
    """The stack with a node on each host."""
    stack.lab.heal()
    stack.scale(1)
    stack.scale(3)
    assert {name.split("-")[0] for name in stack.nodes()} == set(stack.lab.hosts)
    yield stack
    stack.lab.heal()


def test_a_host_that_dies_costs_no_record(spread: Stack) -> None:
    with traffic(spread, seconds=0.2, rate=90) as flows:
        fault_s = time.monotonic()
        spread.lab("kill", "w1")
        await_full_rate("w1 killed", flows.load, fault_s)

    told("w1 killed", flows)
    assert flows.predicts.failed == []
    assert flows.posts.failures.keys() <= {"broken"}  # connections to the frontend that died


def test_a_host_that_comes_back_overwrites_nothing(spread: Stack) -> None:
    with traffic(spread, seconds=0.2, rate=90) as flows:
        fault_s = time.monotonic()
        spread.lab("cut", "w1")
        held = spread.held_by("w1")
        await_full_rate("w1 cut off", flows.load, fault_s)
        spread.lab("heal", "w1")
        wait_until(lambda: not spread.containers("w1", "node"), "w1's old node is told to go", 60)
        flows.load.await_answers(200)

    told("w1 cut off and healed", flows)
    taken_over = [each.node for each in flows.load.book.answered.values() if each.entry in held]
    assert taken_over
    assert not [node for node in taken_over if node.startswith("w1-")]
    assert flows.predicts.failed == []
    assert flows.posts.failures.keys() <= {"broken"}


def await_full_rate(what: str, load: Load, fault_s: float) -> None:
    """Wait until answers come as fast as before the fault, and print when that was."""

    def full_s() -> float:
        seen = [each.seen_s for each in list(load.book.answered.values())]
        return full_again_s(seen, fault_s, load.rate)

    after_s = wait_until(full_s, "the full rate is back", RECOVERY_S)
    print(f"\n{what}: full rate again after {after_s:.0f} s")


def test_redis_comes_back_with_its_data_and_everybody_recovers(stack: Stack) -> None:
    stack.scale(2)
    with traffic(stack) as flows:
        (before,) = stack.containers("m1", "redis")
        stack.lab.docker("m1", "kill", before)
        killed_s = time.monotonic()
        wait_until(lambda: set(stack.containers("m1", "redis")) - {before}, "Redis runs again", 60)
        flows.load.await_answers(80)
        print(f"\nRedis killed: 80 more answers after {time.monotonic() - killed_s:.1f} s")
        await_calls(flows.posts)
        await_calls(flows.predicts)

    told("Redis killed", flows)
    assert flows.predicts.failures.keys() <= {"ConnectionLost"}  # those that were under way
    assert flows.posts.failures.keys() <= {"503"}


def await_calls(callers: Callers) -> None:
    """Wait until some more calls are answered."""
    wanted = callers.answered.total() + 10
    wait_until(lambda: callers.answered.total() >= wanted, "calls are answered", 60)
