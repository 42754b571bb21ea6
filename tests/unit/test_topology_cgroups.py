from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_serving.node.topology import cpulist
from cluster_serving.node.topology.cgroups import Limits, free_bytes, memory_bytes, read_limits
from support.machines import Machine, budget_of, control_groups

V2 = {"": ("/", "/sys/fs/cgroup")}
V1 = {"cpu,cpuacct": ("/", "/sys/fs/cgroup/cpu,cpuacct"), "cpuset": ("/", "/sys/fs/cgroup/cpuset")}
DOCKER = "/docker/3f1c"


def limits(root: Path, mounts: dict[str, tuple[str, str]], own: dict[str, str], groups: dict[str, str]) -> Limits:
    return read_limits(Machine(files=control_groups(mounts, own, groups)).build(root))


def both(path: str) -> dict[str, str]:
    """The group of a process in both hierarchies of version 1."""
    return {"cpu,cpuacct": path, "cpuset": path}


def test_no_control_groups(tmp_path: Path) -> None:
    assert read_limits(tmp_path) == Limits(frozenset(), None)


def test_odd_files(tmp_path: Path) -> None:
    """Mounts with names that are no UTF-8, lines that say nothing, a group that cannot be looked into, empty files."""
    groups = {"cpu.max": "max 100000", "cpuset.cpus.effective": "", "a/cpu.max": "", "a/b/cpu.max": "-1"}
    files = control_groups(V2, {"": "/a/b"}, groups)
    root = Machine(files=files).build(tmp_path)
    (root / "sys/fs/cgroup/a/cpuset.cpus.effective").mkdir()
    mounts = root / "proc/self/mountinfo"
    mounts.write_bytes(b"40 22 0:40 / /m\xe4\xff rw - tmpfs t rw\n\n41 22 0:41 / /x rw\n" + mounts.read_bytes())

    assert read_limits(root) == Limits(frozenset(), None)
    (root / "sys/fs/cgroup/a/cpu.max").write_text("50000 100000\n")
    assert read_limits(root) == Limits(frozenset(), 0.5)


def test_version_2(tmp_path: Path) -> None:
    groups = {
        "cpuset.cpus.effective": "0-3",
        "a.slice/cpu.max": "150000 100000",
        "a.slice/cpuset.cpus.effective": "0,2-3",
    }

    assert limits(tmp_path, V2, {"": "/a.slice"}, groups) == Limits(frozenset({0, 2, 3}), 1.5)


def test_smallest_quota_of_the_path_counts(tmp_path: Path) -> None:
    groups = {"a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "400000 100000"}

    assert limits(tmp_path, V2, {"": "/a/b/c"}, groups).quota == 0.5


def test_group_without_the_controller_has_the_cores_of_the_one_around_it(tmp_path: Path) -> None:
    groups = {"a/cpuset.cpus.effective": "1-2", "a/b/cgroup.procs": ""}

    assert limits(tmp_path, V2, {"": "/a/b"}, groups).cpuset == {1, 2}


def test_version_1(tmp_path: Path) -> None:
    groups = {
        "cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/a/cpu.cfs_quota_us": "75000",
        "cpu,cpuacct/a/cpu.cfs_period_us": "50000",
        "cpuset/cpuset.cpus": "0-3",
        "cpuset/a/cpuset.cpus": "1,3",
    }

    assert limits(tmp_path, V1, both("/a"), groups) == Limits(frozenset({1, 3}), 1.5)


def test_both_versions_at_once(tmp_path: Path) -> None:
    """As systemd's hybrid layout: version 2 is mounted, and has no controllers."""
    mounts = V1 | {"": ("/", "/sys/fs/cgroup/unified")}
    groups = {"cpuset/cpuset.effective_cpus": "2", "unified/cgroup.procs": ""}

    assert limits(tmp_path, mounts, both("/") | {"": "/"}, groups) == Limits(frozenset({2}), None)


@pytest.mark.parametrize(
    ("top", "own"),
    [
        ("/", "/"),  # a namespace of its own
        (DOCKER, DOCKER),  # the machine's namespace, and its own group mounted
        ("/", DOCKER),  # the machine's paths, which are not to be seen
        ("/../..", "/"),
        ("/", "/../../elsewhere"),
    ],
)
def test_container_sees_its_own_group_as_the_root(tmp_path: Path, top: str, own: str) -> None:
    groups = {
        "cpu.max": "150000 100000",
        "cpuset.cpus.effective": "2-3",
        "cpu,cpuacct/cpu.cfs_quota_us": "150000",
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "cpuset/cpuset.cpus": "2-3",
    }
    first = {controllers: (top, point) for controllers, (_, point) in V1.items()}

    assert limits(tmp_path / "1", first, both(own), groups) == Limits(frozenset({2, 3}), 1.5)
    assert limits(tmp_path / "2", {"": (top, "/sys/fs/cgroup")}, {"": own}, groups) == Limits(frozenset({2, 3}), 1.5)


def test_group_inside_a_container(tmp_path: Path) -> None:
    groups = {"cpu.max": "200000 100000", "init/cpu.max": "100000 100000"}

    assert limits(tmp_path, {"": (DOCKER, "/sys/fs/cgroup")}, {"": f"{DOCKER}/init"}, groups).quota == 1


def test_mount_point_with_a_space(tmp_path: Path) -> None:
    mounts = {"": ("/", r"/sys/fs/cgroup/a\040b")}

    assert limits(tmp_path, mounts, {"": "/"}, {"a b/cpu.max": "100000 100000"}).quota == 1


def test_cores_outside_of_the_affinity_or_the_cpuset_are_not_allowed(tmp_path: Path) -> None:
    files = control_groups(V2, {"": "/a"}, {"a/cpuset.cpus.effective": "0,2,5-6"})
    root = Machine(cores=8, files=files).build(tmp_path)

    assert [core.number for core in budget_of({0, 1, 5, 7}, root).cores] == [0, 5]


def test_cpuset_that_leaves_nothing_is_not_believed(tmp_path: Path) -> None:
    root = Machine(files=control_groups(V2, {"": "/a"}, {"a/cpuset.cpus.effective": "3"})).build(tmp_path)

    assert [core.number for core in budget_of({0, 1}, root).cores] == [0, 1]


def test_least_memory_that_a_group_of_the_path_leaves_counts_and_what_files_hold_is_free(tmp_path: Path) -> None:
    second = {"memory.max": "max", "a/memory.max": "1000", "a/memory.current": "700"}
    second |= {"a/memory.stat": "anon 600\ninactive_file 50", "a/b/memory.max": "900", "a/b/memory.current": "100"}
    first = {"memory/a/memory.limit_in_bytes": "1000", "memory/a/memory.usage_in_bytes": "700"}
    first |= {"memory/a/memory.stat": "inactive_file 9\ntotal_inactive_file 60"}
    mounts = {"memory": ("/", "/sys/fs/cgroup/memory")}

    assert free_bytes(tmp_path / "none") is None
    assert free_bytes(Machine(files=control_groups(V2, {"": "/a/b"}, second)).build(tmp_path / "2")) == 350
    assert free_bytes(Machine(files=control_groups(mounts, {"memory": "/a"}, first)).build(tmp_path / "1")) == 360


def test_memory_is_that_of_the_machine_or_of_the_tightest_group(tmp_path: Path) -> None:
    machine = {"proc/meminfo": "MemTotal:       2 kB\nMemFree:        1 kB"}
    group = control_groups(V2, {"": "/a"}, {"a/memory.max": "1000", "a/memory.current": "700"})

    assert memory_bytes(Machine(files=machine).build(tmp_path / "machine")) == 2048
    assert memory_bytes(Machine(files=machine | group).build(tmp_path / "group")) == 1000


cores = st.frozensets(st.integers(0, 7))


@given(affinity=cores.filter(bool), cpuset=cores, offline=cores)
def test_allowed_cores_are_never_empty_and_never_more_than_the_mask(
    tmp_path_factory: pytest.TempPathFactory, affinity: frozenset[int], cpuset: frozenset[int], offline: frozenset[int]
) -> None:
    files = control_groups(V2, {"": "/a"}, {"a/cpuset.cpus.effective": cpulist.written(cpuset)})
    root = Machine(domains=2, cores=2, siblings=2, offline=offline, files=files).build(
        tmp_path_factory.mktemp("machine")
    )

    allowed = {core.number for core in budget_of(affinity, root).cores}

    assert allowed
    assert allowed <= affinity
    if affinity & cpuset - offline:
        assert allowed == affinity & cpuset - offline
