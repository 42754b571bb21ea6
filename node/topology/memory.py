"""Keeps memory on one NUMA domain, through libnuma where that is installed.

Without it, or where a container forbids it, memory is where it is touched first: the processes of a lane are kept on its domain
before they touch any, and only what the supervisor writes to the ring may lie elsewhere.

A domain that is full is no reason to fail: what it has no room for comes from another one (MPOL_PREFERRED of mbind(2)).
"""

import ctypes
import mmap
import os

import structlog

log = structlog.get_logger(__name__)

_PREFERRED = 1
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def keep_segment(fd: int, domain: int) -> bool:
    """Let the pages of a shared segment be on this domain, whichever process touches them; whether that could be said.

    The policy of shared memory belongs to the segment, not to the mapping: one call holds for every process, and for good.
    """
    library = _library()
    if library is None:
        return False
    with mmap.mmap(fd, os.fstat(fd).st_size) as mapping:
        begin = ctypes.c_char.from_buffer(mapping)
        address, size = ctypes.c_void_p(ctypes.addressof(begin)), ctypes.c_ulong(len(mapping))
        failed = library.mbind(address, size, _PREFERRED, *_mask(domain), 0)
        del begin  # else the mapping cannot be closed
    if failed:
        log.debug("the ring is where it is touched first", domain=domain, reason=os.strerror(ctypes.get_errno()))
    return not failed


def keep_process(domain: int) -> bool:
    """Let what this thread, and those that it starts, touch from now on be on this domain; whether that could be said."""
    library = _library()
    return library is not None and not library.set_mempolicy(_PREFERRED, *_mask(domain))


def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libnuma.so.1", use_errno=True)
    except OSError:
        return None
    return library if library.numa_available() >= 0 else None


def _mask(domain: int) -> "tuple[ctypes.Array[ctypes.c_ulong], ctypes.c_ulong]":
    """A set of one domain, and how many bits it has; the kernel reads one less."""
    words = domain // _WORD_BITS + 1
    mask = (ctypes.c_ulong * words)()
    mask[-1] = 1 << domain % _WORD_BITS
    return mask, ctypes.c_ulong(words * _WORD_BITS + 1)
