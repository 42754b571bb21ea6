import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys
from cluster_serving.node.models.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
bytearray(64 << 20)[::4096] = bytes(1 << 14)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    bytearray(64 << 20)[::4096] = bytes(1 << 14)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(what: str) -> int:
    """Of using 64 MiB a second, third and fourth time."""
    result = subprocess.run([sys.executable, "-c", PROGRAM, what], capture_output=True, check=True, text=True)
    return int(result.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not the C library that has mallopt")
def test_freed_memory_is_used_again_without_page_faults() -> None:
    assert page_faults("keep") < 16 <= page_faults("leave")
