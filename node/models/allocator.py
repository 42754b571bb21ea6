"""Tells the C library's allocator to keep what is freed.

glibc gives large blocks back to the kernel as soon as they are freed, and every activation of the next run then faults its pages
in again, one by one. Measured (page faults and CPU ms a run, SqueezeNet of 8 rows, one thread; `getrusage` over 8 runs):

             left alone                      kept
    torch    19,000-33,000   208-234 ms      0         177 ms
    bigdl    20,000-22,000   222-240 ms      0-274     188-212 ms
    caffe    51,000          1,095 ms        0         1,007 ms      32 rows
    numpy    3,200           72-93 ms        0         33 ms         ten functions of 51 MB each, as a model in Python may call

ONNX Runtime, OpenVINO and TensorFlow have allocators of their own, 0 faults either way, and would only hold 2 to 65 MB more.
"""

import ctypes
import gc
from typing import Any

GAINS = frozenset({"torch", "bigdl", "caffe", "python"})
"""The backends that are faster with it."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h

# No block is mapped on its own, nothing is trimmed, and the heap grows in steps that are worth a system call.
_SETTINGS = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}


def keep_freed_memory() -> None:
    """Let this process keep freed memory for its next allocations; call it before the first large one.

    The process then holds the most that it ever used. Without effect where the C library has no `mallopt` (musl, macOS).
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        for parameter, value in _SETTINGS.items():
            mallopt(parameter, value)


def give_back() -> None:
    """Give back, this once, what is free: a model that was only tried leaves as much as it took."""
    gc.collect()
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
