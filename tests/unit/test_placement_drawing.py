from pathlib import Path

from cluster_serving.node.commands.placement import Running, all_cores, described, drawn
from cluster_serving.node.topology.placement import place
from support.machines import Machine


def test_drawing(tmp_path: Path) -> None:
    cores = all_cores(Machine(domains=2, cores=3, siblings=2, packages=2, offline={11}).build(tmp_path))
    places = place(cores, 4, 1)
    everywhere = tuple(core.number for core in cores)
    running = [
        Running("digits", "supervisor", 100, 2, everywhere),
        *(Running("digits", "worker", 101 + at, 1, own) for at, own in enumerate(places.workers)),
        Running("digits", "reader", 105, 1, (0, 1, 2)),
        Running("digits", "writer", 106, 1, (0, 1, 2, 3, 4, 5)),
    ]

    assert drawn(cores, running).splitlines() == [
        "socket 0",
        "  NUMA domain 0",
        "    cores 0,6               digits worker 101, digits reader 105",
        "    cores 1,7               digits worker 102, digits reader 105",
        "    cores 2,8               digits reader 105",
        "socket 1",
        "  NUMA domain 1",
        "    cores 3,9               digits worker 103",
        "    cores 4,10              digits worker 104",
        "    core 5                  -",
        "on any core                 digits supervisor 100",
        "on cores 0-5                digits writer 106",
    ]


def test_neighbours_are_one_row_and_rows_are_80_columns_wide(tmp_path: Path) -> None:
    cores = all_cores(Machine(cores=64, efficient=range(32, 64)).build(tmp_path))
    running = [Running("a-job-with-a-name", "worker", pid, 1, (5,)) for pid in range(1000, 1010)]

    lines = drawn(cores, running).splitlines()

    assert lines[2:4] == ["    cores 0-4               -", f"    core 5                  {running[0]},"]
    assert lines[-2:] == ["    cores 6-31              -", "    cores 32-63 efficient   -"]
    assert max(map(len, lines)) <= 80


def test_json(tmp_path: Path) -> None:
    cores = all_cores(Machine(cores=1, siblings=2).build(tmp_path))

    assert described(cores, [Running("a", "reader", 7, 3, (1,))]) == {
        "cores": [
            {"number": number, "physical": 0, "package": 0, "domain": 0, "efficient": False} for number in (0, 1)
        ],
        "processes": [{"job": "a", "kind": "reader", "pid": 7, "threads": 3, "cores": (1,)}],
    }
