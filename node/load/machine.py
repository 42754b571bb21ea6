"""Machine of a measurement, in one line."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Return the usable cores, the processor, and the versions of Python and Linux."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if "model name" in line), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}, Linux {platform.release()}"
