"""A node on a machine with two NUMA domains, which is emulated: where its processes run, and where their memory lies.

`-s` shows what the machine says of itself and of the processes, and how long it took; times in it mean nothing.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from support.numa_vm import boot_files, machine
from support.numa_vm.guest import VALUES
from support.numa_vm.observed import Observed, Pages, Process

pytestmark = [pytest.mark.numa, pytest.mark.timeout(1800)]

ROOT: Final = Path(__file__).resolve().parents[2]
CORES: Final = {0: {0, 1}, 1: {2, 3}}
CASES: Final = ("whole", "without_libnuma", "mask")
MOSTLY: Final = 0.9
"""Of a process's own pages: some are shared with the process that it was started from, or hold what was read of files."""
PROGRAM: Final = f"""
numactl --hardware >/mnt/shared/hardware
export PYTHONPATH='{{search_path}}' OPENBLAS_NUM_THREADS=1
cd /mnt && exec '{sys.executable}' -m support.numa_vm.guest /mnt/shared/double.onnx /mnt/shared
"""


class Machine:
    """Observations in the machine: its hardware, and the node of each case."""

    def __init__(self, shared: Path) -> None:
        self.hardware = (shared / "hardware").read_text()
        self.nodes = {
            case: msgspec.json.decode((shared / f"{case}.json").read_bytes(), type=Observed) for case in CASES
        }


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """One run of the machine, for all tests."""
    if reason := machine.why_not():
        pytest.skip(reason)
    shared = tmp_path_factory.mktemp("shared")
    write_model(shared / "double.onnx")
    for part in ("client", "node", "tests/support"):  # there, compiling what is imported would take minutes
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / part)], check=True)
    boot = boot_files.prepare(ROOT / "build" / "numa_vm", tmp_path_factory.mktemp("boot"))
    begun_s = time.monotonic()
    code = machine.run(boot, shared, PROGRAM.format(search_path=os.pathsep.join(sys.path)), timeout_s=1700)
    assert code == 0, (shared / "output").read_text()
    seen = Machine(shared)
    print(f"\n{seen.hardware}{time.monotonic() - begun_s:.0f} s in all")
    for case, node in seen.nodes.items():
        print(f"\n{case}: {node.seconds}\n{node.placement}{table(node)}")
    return seen


@pytest.fixture(params=CASES)
def node(request: pytest.FixtureRequest, emulated: Machine) -> Observed:
    """A node in one of the cases."""
    return emulated.nodes[request.param]


def write_model(path: Path) -> None:
    """One that doubles rows."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", VALUES]) for name in "xy")
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "double", [x], [y], [two])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def table(node: Observed) -> str:
    """A line a process."""
    lines = [f"{'':12}{'cores':14}{'pages of rings':30}own pages"]
    for process in node.processes:
        rings = " ".join(f"{inode}:{written(pages)}" for inode, pages in process.rings.items())
        lines.append(
            f"{process.kind:12}{process.cores!s:14}{rings:30}{written(process.own)}  {' '.join(process.policies)}"
        )
    return "\n".join(lines)


def written(pages: Pages) -> str:
    """Return pages by domain as numa_maps writes them."""
    return " ".join(f"N{domain}={count}" for domain, count in sorted(pages.items()))


def home_of(lane: Sequence[Process]) -> int:
    """The one domain that the processes of a lane may run on."""
    (home,) = [domain for domain, cores in CORES.items() if all(set(process.cores) <= cores for process in lane)]
    return home


def share_on(domain: int, *pages: Pages) -> float:
    """Return the share of these pages that is on a domain, from 0 to 1."""
    total = sum((Counter(some) for some in pages), Counter[int]())
    return total[domain] / total.total()


def test_the_machine_has_two_domains(emulated: Machine) -> None:
    assert "available: 2 nodes (0-1)" in emulated.hardware
    assert "node 0 cpus: 0 1\n" in emulated.hardware
    assert "node 1 cpus: 2 3\n" in emulated.hardware


def test_each_domain_has_a_lane_whose_processes_run_on_its_cores_alone(node: Observed) -> None:
    lanes = list(node.lanes().values())

    assert sorted(home_of(lane) for lane in lanes) == [0, 1]
    for lane in lanes:
        workers = len(node.of("worker")) // 2
        assert sorted(process.kind for process in lane) == ["reader", *["worker"] * workers, "writer"]


def test_every_record_is_answered_once(node: Observed) -> None:
    assert (node.wrong, node.answered, node.unanswered) == (0, node.sent, 0)


def test_the_own_memory_of_each_process_is_on_its_domain(node: Observed) -> None:
    for lane in node.lanes().values():
        for process in lane:
            assert share_on(home_of(lane), process.own) > MOSTLY, process


@pytest.mark.parametrize("case", ["whole", "mask"])
def test_every_page_of_a_ring_is_on_the_domain_of_its_lane(emulated: Machine, case: str) -> None:
    """Also those that the supervisor has touched, which runs anywhere."""
    node = emulated.nodes[case]
    for ring, lane in node.lanes().items():
        touched = [process.rings[ring] for process in (*lane, *node.of("supervisor"))]
        assert share_on(home_of(lane), *touched) == 1, touched


def test_without_libnuma_what_a_lane_touches_first_is_on_its_domain(emulated: Machine) -> None:
    """All but what the supervisor has written to the ring before."""
    node = emulated.nodes["without_libnuma"]
    for ring, lane in node.lanes().items():
        for process in lane:
            assert process.policies == ["default"]
        (worker,) = (process for process in lane if process.kind == "worker")
        assert share_on(home_of(lane), worker.rings[ring]) > MOSTLY


def test_workers_that_fill_the_machine_have_a_core_each(emulated: Machine) -> None:
    workers = emulated.nodes["whole"].of("worker")
    assert sorted(process.cores for process in workers) == [[0], [1], [2], [3]]


def test_a_mask_from_outside_holds_for_every_process(emulated: Machine) -> None:
    node = emulated.nodes["mask"]
    assert {core for process in node.processes for core in process.cores} == {0, 2}


def test_the_placement_is_drawn_by_domain(emulated: Machine) -> None:
    drawn = emulated.nodes["whole"].placement
    first, _, second = drawn.partition("socket 1")
    assert "NUMA domain 0" in first
    assert "NUMA domain 1" in second
    assert first.count("worker") == second.count("worker") == 2
