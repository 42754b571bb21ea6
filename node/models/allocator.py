"""Settings of the C library's allocator that keep freed memory in the process.

glibc gives large blocks back to the kernel as soon as they are freed. Every activation of the next run then faults its pages in
again, page by page. Measured (page faults and CPU ms a run, SqueezeNet of 8 rows, one thread; `getrusage` over 8 runs):

             left alone                      kept
    torch    19,000-33,000   208-234 ms      0         177 ms
    bigdl    20,000-22,000   222-240 ms      0-274     188-212 ms
    caffe    51,000          1,095 ms        0         1,007 ms      32 rows
    numpy    3,200           72-93 ms        0         33 ms         ten functions of 51 MB each, as a model in Python may call

The reader gains too: an image of 600 kB took 0.8 ms of its processor time, and takes 0.4 ms with the memory of earlier replies.

ONNX Runtime, OpenVINO and TensorFlow have their own allocators, with 0 faults either way. The settings would only
make the process hold 2 to 65 MB more.
"""

import ctypes
import gc
from typing import Any

GAINS = frozenset({"torch", "bigdl", "caffe", "python"})
"""Backends that run faster when freed memory is kept."""

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h

# Large blocks come from the heap, the heap is never trimmed, and the heap grows in steps that are worth a system call.
_SETTINGS = {_M_MMAP_THRESHOLD: 1 << 30, _M_TRIM_THRESHOLD: (1 << 31) - 1, _M_TOP_PAD: 64 << 20}
_LEAST_BOUND, _LARGEST_BOUND = 32 << 20, 256 << 20


def keep_freed_memory(most_bytes: int | None = None) -> None:
    """Let the process keep freed memory for its next allocations. Call the function before the first large allocation.

    The process then holds the most memory that it ever used, or about `most_bytes` of free memory, at least 32 and at most 256 MB.
    The call has no effect if the C library has no `mallopt` (musl, macOS).
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        settings = _SETTINGS
        if most_bytes is not None:  # a heap with more free memory is trimmed to its padding
            settings = dict.fromkeys(_SETTINGS, min(max(most_bytes, _LEAST_BOUND), _LARGEST_BOUND))
        for parameter, value in settings.items():
            mallopt(parameter, value)


def give_back() -> None:
    """Give free memory back to the kernel once, because a model that was only tried leaves its memory in the process."""
    gc.collect()
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)
