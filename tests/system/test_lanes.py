"""Several lanes side by side, as on a machine with several NUMA domains: here both are on the only one there is."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from cluster_serving.client import OutputQueue, keys
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.supervisor.child import Child
from cluster_serving.node.supervisor.generation import Generation
from cluster_serving.node.supervisor.inheritance import LaneName
from cluster_serving.node.topology import memory
from support.caller import Caller, calling
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_node import running_node
from support.turning import CORES, Turning, arrangement, turning
from support.wait import wait_until

JOB = "lanes"


@pytest.fixture
def turned(own_redis: PrivateRedis) -> Iterator[Turning]:
    with turning(own_redis, JOB) as turned:
        yield turned


@pytest.fixture
def caller(own_redis: PrivateRedis) -> Iterator[Callable[[], Caller]]:
    """Starts a caller."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(calling(own_redis, JOB))


def children(lanes: Generation) -> dict[str, Child]:
    return {child.name: child for child in lanes.children()}


def is_buried(child: Child, lanes: Generation) -> bool:
    return all(other is not child for other in lanes.children())


def complete(lanes: Generation) -> bool:
    """Return whether all children of two lanes are ready and no other child is left."""
    ready = [child.ready is not None for child in lanes.children()]
    return len(ready) == lanes.workers + 4 and all(ready) and lanes.workers_ready == lanes.workers


def finish(turned: Turning, caller: Caller) -> None:
    caller.stop()
    turned.until(lambda: caller.finished, "every call has been answered")
    assert caller.failure is None


def is_clean(server: PrivateRedis) -> bool:
    with server.client() as client:
        return bool(client.xlen(JOB) == 0 and client.xpending(JOB, keys.GROUP)["pending"] == 0)


def test_whoever_dies_in_a_lane_is_followed_and_every_record_is_answered(
    turned: Turning, caller: Callable[[], Caller], own_redis: PrivateRedis
) -> None:
    lanes = turned.start(arrangement(2, 1))
    assert sorted(children(lanes)) == ["reader", "reader-1", "worker-0", "worker-1", "worker-10", "writer", "writer-1"]
    calls = caller()

    for name in ("worker-1", "worker-10", "reader-1", "writer", "reader", "writer-1"):
        turned.until(calls.more(), "calls are answered")
        victim = children(lanes)[name]
        victim.signal(signal.SIGKILL)
        turned.until(partial(is_buried, victim, lanes), "it is buried")
    turned.until(lambda: complete(lanes), "all are back")
    calls.workers.clear()
    turned.until(lambda: calls.failure or calls.workers == {0, 1, 10}, "all workers of both lanes answer")
    finish(turned, calls)

    assert lanes.figures.counts["restarts"] == 6
    assert is_clean(own_redis)
    turned.retire(lanes)


def test_workers_come_and_go_in_both_lanes_under_load(
    turned: Turning, caller: Callable[[], Caller], own_redis: PrivateRedis
) -> None:
    """In the same processes and rings; who loads does so alone, and what is dismissed finishes what it has."""
    lanes = turned.start(arrangement(1, 1))
    stay = {child.pid for child in lanes.children()}
    calls = caller()

    for crews in ((3, 2), (1, 2), (2, 1), (1, 1)):
        wanted = arrangement(*crews)
        assert lanes.can_become(wanted)
        lanes.rearrange(wanted)
        assert lanes.workers == sum(crews)
        turned.until(lambda: complete(lanes), "there are as many as wanted")
        turned.until(calls.more(), "calls are answered")
    finish(turned, calls)
    turned.until(lambda: lanes.figures.counts["answered"] >= calls.answers, "the writers have counted every answer")

    assert stay == {child.pid for child in lanes.children()}
    counts = lanes.figures.counts
    assert (counts["answered"], counts["failed"], counts["repeated"], counts["restarts"]) == (calls.answers, 0, 0, 0)
    assert is_clean(own_redis)


def test_what_needs_other_lanes_is_no_rearrangement(turned: Turning) -> None:
    lanes = turned.make(arrangement(1, 1))
    two = arrangement(1, 1)
    threads = two._replace(choice=type(two.choice)(2, 2, two.choice.batch, two.choice.runtime))

    assert not any(lanes.can_become(other) for other in (arrangement(2), arrangement(1, 1, 1), threads))
    assert not lanes.can_become(arrangement(1, 11))  # than it has room for
    assert lanes.can_become(arrangement(4, 10))


def test_two_lanes_give_way_to_one_and_come_back_without_a_lost_record(
    turned: Turning, caller: Callable[[], Caller], own_redis: PrivateRedis
) -> None:
    old = turned.start(arrangement(1, 1))
    calls = caller()
    seen: list[set[str]] = []

    for crews in ((1,), (1, 1)):
        turned.until(calls.more(), "calls are answered")
        with own_redis.client() as client:
            seen.append({each["name"].decode() for each in client.xinfo_consumers(JOB, keys.GROUP)})
        new = turned.start(arrangement(*crews))
        turned.retire(old)
        old = new
    turned.until(calls.more(), "calls are answered")
    finish(turned, calls)

    assert seen == [{"node", "node.1"}, {"node", "node.1", "node.b"}]
    assert is_clean(own_redis)


def test_lanes_that_are_given_up_before_all_serve_answer_what_some_have_read(
    held: Path, turned: Turning, caller: Callable[[], Caller], own_redis: PrivateRedis
) -> None:
    (held / "reader").touch()
    lanes = turned.make(arrangement(1, 1))
    lanes.start()
    turned.until(lambda: "reader-1" in children(lanes), "readers start")
    children(lanes)["reader-1"].signal(signal.SIGSTOP)
    (held / "reader").unlink()
    turned.until(lambda: lanes.answering, "the other lane serves")
    calls = caller()
    turned.until(calls.more(), "calls are answered")
    assert not lanes.serving

    lanes.give_up()
    turned.until(lambda: lanes.ended, "they have ended")

    with own_redis.client() as client:
        assert client.xpending(JOB, keys.GROUP)["pending"] == 0
    turned.start(arrangement(1))
    finish(turned, calls)
    assert is_clean(own_redis)


@pytest.mark.skipif(len(CORES) < 2, reason="with one core there is nowhere to go")
def test_a_worker_that_is_moved_while_it_starts_is_where_it_was_moved_to(turned: Turning) -> None:
    """And not where it keeps itself when it begins, as it was told then."""
    first, second = (core.number for core in CORES[:2])
    lanes = turned.start(arrangement(1))
    lanes.rearrange(arrangement(2, cores=(first,)))
    lanes.look_after()

    lanes.rearrange(arrangement(2, cores=(second,)))
    turned.until(lambda: lanes.workers_ready == 2, "it is ready")

    workers = [child for name, child in children(lanes).items() if name.startswith("worker")]
    assert [psutil.Process(child.pid).cpu_affinity() for child in workers] == [[second]] * 2


@pytest.mark.parametrize(
    ("generation", "lane", "name"), [(0, 0, "n"), (1, 0, "n.b"), (2, 0, "n"), (0, 1, "n.1"), (1, 12, "n.12b")]
)
def test_lanes_read_under_names_of_their_own(generation: int, lane: int, name: str) -> None:
    assert LaneName("n", generation, lane).consumer == name


def test_a_node_takes_at_once_what_its_lanes_of_an_earlier_run_held(own_redis: PrivateRedis, tmp_path: Path) -> None:
    """Of those that it has no more, too, and not after the lease; what another node holds is left to that."""
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "lease": 3600}
    with running_node(tmp_path, own_redis, **settings) as node, own_redis.client() as client:
        name = str(node.heartbeat()["node"])
        assert node.stop() == 0
        consumers = [name, f"{name}.b", f"{name}.1", f"{name}.12b", f"{name}.other"]
        for uri in consumers:
            client.xadd(JOB, fields_of(uri))
            client.xreadgroup(keys.GROUP, uri, {JOB: ">"})

        node.start()

        wait_until(lambda: client.xlen(JOB) == 1, "its own are answered")
        with OutputQueue(port=own_redis.port, name=JOB) as output:
            assert output.dequeue().keys() == set(consumers[:4])
        assert client.xpending(JOB, keys.GROUP)["consumers"] == [{"name": consumers[4].encode(), "pending": 1}]


def fields_of(uri: str) -> dict[bytes, bytes]:
    fields = encode_record(uri, {"x": np.ones(4, np.float32)})
    return {bytes(field): bytes(content) for field, content in zip(fields[::2], fields[1::2], strict=True)}


def policies(pid: int) -> tuple[str, set[str]]:
    """The memory policy of a process's heap, and of its ring."""
    lines = [line.split() for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines()]
    heap = next(line[1] for line in lines if "heap" in line)
    return heap, {line[1] for line in lines if any("memfd:cluster-serving-ring" in word for word in line)}


def test_memory_of_a_lane_is_on_its_domain(turned: Turning) -> None:
    lanes = turned.start(arrangement(1, 1, domain=0))

    kept = "prefer:0" if memory.keep_process(0) else "default"
    assert {child.pid: policies(child.pid) for child in lanes.children()} == {
        child.pid: (kept, {kept}) for child in lanes.children()
    }
    assert all(psutil.Process(child.pid).cpu_affinity() for child in lanes.children())
