"""Memory of the machine: waits for it, and its placement on one NUMA domain, through libnuma where libnuma is installed.

Without libnuma, or where a container forbids the calls, memory lies where a process touches it first. The processes of a lane are
pinned to the lane's domain before they touch any memory, so only pages that the supervisor writes to the ring may lie elsewhere.

A full domain is no error: pages without room come from another domain (MPOL_PREFERRED of mbind(2)).
"""

import ctypes
import mmap
import os
from pathlib import Path

import structlog

from cluster_serving.node.topology import cpulist

log = structlog.get_logger(__name__)

_PREFERRED = 1
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def keep_segment(fd: int, domain: int) -> bool:
    """Place the pages of a shared segment on a domain, and return whether the kernel accepted the policy.

    The policy of shared memory belongs to the segment, not to the mapping. One call holds for every process, and for good.
    """
    library = _library()
    if library is None:
        return False
    with mmap.mmap(fd, os.fstat(fd).st_size) as mapping:
        begin = ctypes.c_char.from_buffer(mapping)
        address, size = ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_ulong(len(mapping))
        failed = library.mbind(address, size, _PREFERRED, *_mask(domain), 0)
        del begin  # an exported pointer would keep the mapping from closing
    if failed:
        log.debug("the ring has no NUMA policy", domain=domain, reason=os.strerror(ctypes.get_errno()))
    return not failed


def keep_process(domain: int) -> bool:
    """Place new memory of the calling thread and its future threads on a domain, and return whether the kernel accepted."""
    library = _library()
    return library is not None and not library.set_mempolicy(_PREFERRED, *_mask(domain))


def has_libnuma() -> bool:
    """Return whether memory can be placed on a domain: libnuma is installed, and the kernel has the calls."""
    return _library() is not None


def starved_s(root: Path = Path("/")) -> float:
    """Return the seconds during which a process of the machine waited for memory. 0: the kernel does not tell."""
    some = cpulist.text_of(root / "proc/pressure/memory").partition("\n")[0]
    return int(some.rpartition("total=")[2] or 0) / 1e6


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnuma.so.1", use_errno=True)
    except OSError:
        return None
    return library if library.numa_available() >= 0 else None


def _mask(domain: int) -> "tuple[ctypes.Array[ctypes.c_ulong], ctypes.c_ulong]":
    """Return the bit set of a domain, and the number of bits to pass. The kernel reads one bit less than the number."""
    words = domain // _WORD_BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[-1] = 1 << domain % _WORD_BITS
    return mask, ctypes.c_ulong(words * _WORD_BITS + 1)
