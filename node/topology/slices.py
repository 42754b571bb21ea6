"""Time slices of the processor (EEVDF, Linux 6.12 and newer): who computes for long in long slices lets short work run first.

The share of the processor stays the same. Older kernels take the setting and ignore it.
Source: sched_setattr(2), and Documentation/scheduler/sched-eevdf.rst of Linux.
"""

import ctypes
import os
import platform
import struct

from cluster_serving.node.topology.threads import TASKS

LONG_US = 100_000
"""The longest slice that the kernel takes."""
USUAL_US = 0
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}.get(platform.machine())
_ATTR = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime (ns), deadline, period


def set_slice(microseconds: int) -> None:
    """Set the slice of every thread of this process, if the kernel has slices. Threads pass it on to those that they start."""
    if _SCHED_SETATTR is None:
        return
    call = ctypes.CDLL(None).syscall
    for task in TASKS.iterdir():
        thread = int(task.name)
        policy = os.sched_getscheduler(thread)
        if policy in (os.SCHED_OTHER, os.SCHED_BATCH):
            nice = os.getpriority(os.PRIO_PROCESS, thread)
            call(_SCHED_SETATTR, thread, _ATTR.pack(_ATTR.size, policy, 0, nice, 0, 1000 * microseconds, 0, 0), 0)
