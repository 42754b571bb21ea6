import threading
from pathlib import Path

import pytest

from cluster_serving.node.topology.threads import Threads, look, times


def task(root: Path, thread: int, ran_ns: int, cores: str) -> None:
    (root / str(thread)).mkdir(exist_ok=True)
    (root / str(thread) / "schedstat").write_text(f"{ran_ns} 5 7\n")
    (root / str(thread) / "status").write_text(f"Name:\tpython\nCpus_allowed:\tff\nCpus_allowed_list:\t{cores}\n")


def test_threads_that_take_turns_count_as_one(tmp_path: Path) -> None:
    for thread, ran_ns, cores in ((1, 100, "0"), (2, 0, "0"), (3, 50, "0")):
        task(tmp_path, thread, ran_ns, cores)
    before = times(tmp_path)
    for thread, ran_ns, cores in ((1, 300, "0"), (2, 900, "0-1"), (3, 50, "0"), (4, 800, "4")):
        task(tmp_path, thread, ran_ns, cores)

    assert before == {1: 100, 2: 0, 3: 50}
    assert look(before, tmp_path) == Threads(total=4, computing=2, cores=(0, 1, 4))


def test_nothing_computed_and_nothing_counted(tmp_path: Path) -> None:
    task(tmp_path, 1, 7, "0")
    (tmp_path / "2").mkdir()

    assert look(times(tmp_path), tmp_path) == Threads(total=2, computing=0, cores=(0,))


@pytest.mark.parametrize(
    ("computing", "cores", "wanted", "excess"),
    [(0, 4, 1, 0), (1, 4, 1, 0), (2, 4, 1, 0), (4, 4, 1, 2), (4, 4, 4, 0), (8, 4, 8, 3), (3, 1, 2, 1)],
)
def test_excess(computing: int, cores: int, wanted: int, excess: int) -> None:
    assert Threads(9, computing, tuple(range(cores))).excess(wanted) == excess


def test_threads_of_this_process() -> None:
    before, enough = times(), threading.Event()
    workers = [threading.Thread(target=enough.wait) for _ in range(3)]
    for worker in workers:
        worker.start()

    seen = look(before)
    enough.set()
    for worker in workers:
        worker.join()

    assert seen.total >= 4
    assert seen.cores
