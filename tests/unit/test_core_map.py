from collections.abc import Sequence
from pathlib import Path

from cluster_serving.node.commands.core_map import Running, all_cores, described, drawn
from cluster_serving.node.topology.budget import Budget
from cluster_serving.node.topology.machine import Core
from cluster_serving.node.topology.placement import lanes
from support.machines import Machine


def running_lanes(cores: Sequence[Core], workers: int, quota: float | None = None) -> list[Running]:
    """A node with so many workers, as it would place itself."""
    room = 0
    found = [Running("digits", "supervisor", "supervisor", 100, 2, tuple(core.number for core in cores))]
    for number, lane in enumerate(lanes(Budget(tuple(cores), quota), workers, 1)):
        for at, own in enumerate(lane.workers, room):
            found.append(Running("digits", "worker", f"worker-{at}", 101 + at, 1, own))
        room += 3
        for kind, pid in (("reader", 200 + number), ("writer", 210 + number)):
            found.append(Running("digits", kind, f"{kind}-{number}" if number else kind, pid, 1, lane.others))
    return found


def test_drawing(tmp_path: Path) -> None:
    cores = all_cores(Machine(domains=2, cores=3, siblings=2, packages=2, offline={11}).build(tmp_path))

    assert drawn(cores, running_lanes(cores, 6), 80).splitlines() == [
        "socket 0",
        "  NUMA domain 0, lane 0  digits reader 200, digits writer 210",
        "    cores 0,6            digits worker-0 101",
        "    cores 1,7            digits worker-1 102",
        "    cores 2,8            digits worker-2 103",
        "socket 1",
        "  NUMA domain 1, lane 1",
        "    cores 3,9            digits worker-3 104, digits reader-1 201,",
        "                         digits writer-1 211",
        "    cores 4,10           digits worker-4 105, digits reader-1 201,",
        "                         digits writer-1 211",
        "    core 5               digits worker-5 106",
        "on any core              digits supervisor 100",
    ]


def test_lanes_whose_workers_have_no_cores_of_their_own(tmp_path: Path) -> None:
    cores = all_cores(Machine(domains=2, cores=3).build(tmp_path))

    assert drawn(cores, running_lanes(cores, 3, quota=3.5), 80).splitlines() == [
        "socket 0",
        "  NUMA domain 0, lane 0  digits worker-0 101, digits worker-1 102,",
        "                         digits reader 200, digits writer 210",
        "    cores 0-2            -",
        "  NUMA domain 1, lane 1  digits worker-3 104, digits reader-1 201,",
        "                         digits writer-1 211",
        "    cores 3-5            -",
        "on any core              digits supervisor 100",
    ]


def test_one_lane_that_is_kept_on_some_cores(tmp_path: Path) -> None:
    cores = all_cores(Machine(cores=4).build(tmp_path))
    running = [Running("a", "worker", "worker-0", 7, 1, (0,)), Running("a", "writer", "writer", 8, 1, (0, 1))]

    assert drawn(cores, running, 80).splitlines() == [
        "socket 0",
        "  NUMA domain 0",
        "    core 0       a worker-0 7, a writer 8",
        "    core 1       a writer 8",
        "    cores 2-3    -",
    ]


def test_neighbours_are_one_row_that_is_folded_between_processes(tmp_path: Path) -> None:
    cores = all_cores(Machine(cores=64, efficient=range(32, 64)).build(tmp_path))
    running = [Running("a-job-with-a-name", "worker", "worker-5", pid, 1, (5,)) for pid in range(1000, 1010)]

    lines = drawn(cores, running, 80).splitlines()
    in_a_pipe = drawn(cores, running, 1000).splitlines()

    assert lines[2:4] == ["    cores 0-4              -", f"    core 5                 {running[0]},"]
    assert lines[-2:] == ["    cores 6-31             -", "    cores 32-63 efficient  -"]
    assert max(map(len, lines)) <= 80
    assert in_a_pipe[3] == "    core 5                 " + ", ".join(map(str, running))


def test_json(tmp_path: Path) -> None:
    cores = all_cores(Machine(cores=1, siblings=2).build(tmp_path))

    assert described(cores, [Running("a", "reader", "reader", 7, 3, (1,))]) == {
        "cores": [
            {"number": number, "physical": 0, "package": 0, "domain": 0, "efficient": False} for number in (0, 1)
        ],
        "processes": [{"job": "a", "kind": "reader", "name": "reader", "pid": 7, "threads": 3, "cores": (1,)}],
    }
