import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
from cluster_serving.node.models.allocator import give_back, keep_freed_memory
from cluster_serving.node.models.base import LoadOptions
from cluster_serving.node.models.detect import detect, load

BLOCK = int(sys.argv[2])
if sys.argv[1] == "keep":
    keep_freed_memory()
elif sys.argv[1] == "bounded":
    keep_freed_memory(32 << 20)
elif sys.argv[1] != "leave":
    model = load(detect(sys.argv[1]), LoadOptions())

def used():
    blocks = [bytearray(BLOCK) for _ in range((64 << 20) // BLOCK)]
    for block in blocks:
        block[::4096] = bytes(len(block[::4096]))
    del block, blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def pages():
    return int(open("/proc/self/statm").read().split()[1])

used()
before = used()
after = [used() for _ in range(3)]
held = pages()
give_back()
print(after[-1] - before, held - pages())
"""
MODEL = """
class Model:
    inputs = outputs = [("x", "float32", (None, 2))]
    def predict(self, batch):
        return batch
"""
MANY_PAGES = (32 << 20) // 4096

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not the C library that has mallopt")


def faults_and_pages(what: str, block: int = 64 << 20) -> tuple[int, int]:
    """Page faults of using 64 MiB three times more, in blocks, and the pages that are given back then."""
    command = [sys.executable, "-c", PROGRAM, what, str(block)]
    result = subprocess.run(command, capture_output=True, check=True, text=True)
    faults, pages = result.stdout.split()
    return int(faults), int(pages)


def test_freed_memory_is_used_again_without_page_faults_and_given_back_when_told() -> None:
    kept_faults, kept_pages = faults_and_pages("keep")
    left_faults, left_pages = faults_and_pages("leave")

    assert kept_faults < 16 <= left_faults
    assert left_pages < MANY_PAGES < kept_pages


def test_memory_beyond_the_bound_goes_back_at_once() -> None:
    faults, pages = faults_and_pages("bounded", 600_000)
    whole_faults, whole_pages = faults_and_pages("bounded")

    assert MANY_PAGES // 2 < faults < 4 * MANY_PAGES  # half of the 64 MiB is kept
    assert MANY_PAGES // 2 < pages < 2 * MANY_PAGES
    assert whole_faults > 4 * MANY_PAGES
    assert whole_pages < MANY_PAGES


def test_a_backend_without_an_allocator_of_its_own_keeps_freed_memory(tmp_path: Path) -> None:
    """Such a backend is a user's model in Python, which may call torch or numpy."""
    (tmp_path / "model.py").write_text(MODEL)

    faults, _ = faults_and_pages(str(tmp_path))

    assert faults < 16
