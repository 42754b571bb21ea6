"""The emulated machine: two sockets of two cores and 2 GB each. It reads this one's files, and writes to one directory of it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from support.numa_vm.boot_files import BootFiles

_BINARY: Final = "qemu-system-x86_64"
_PROGRAMS: Final = {_BINARY: "qemu-system-x86", "busybox": "busybox-static", "numactl": "numactl"}
_LAYOUT: Final = """
-machine q35 -accel tcg,thread=multi -cpu max -m 4G -smp 4,sockets=2,cores=2,threads=1
-object memory-backend-ram,id=m0,size=2G -object memory-backend-ram,id=m1,size=2G
-numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1 -numa dist,src=0,dst=1,val=21
-display none -monitor none -nic none -no-reboot
"""
_KERNEL: Final = "console=ttyS0 panic=-1 quiet tsc=reliable clocksource=tsc"
"""The clock is read thousands of times a second: of those that are emulated, this one alone is cheap."""


def why_not() -> str:
    """Why there can be no such machine here; empty when there can."""
    if os.geteuid() != 0:
        return "the machine reads this one's files as root"
    release = Path("/etc/os-release")
    if not release.exists() or "VERSION_CODENAME=bookworm" not in release.read_text():
        return "the machine's kernel is that of Debian 12"
    missing = [package for program, package in _PROGRAMS.items() if not shutil.which(program)]
    return f"apt-get install --no-install-recommends {' '.join(missing)}" if missing else ""


def run(boot: BootFiles, shared: Path, program: str, timeout_s: float) -> int:
    """Switch it on, let it run a program, and wait until it is off.

    Args:
        boot: what it boots from.
        shared: an empty directory; there `/mnt/shared`, with the program's `output`. The `console` tells about boot trouble.
        program: a shell script.
        timeout_s: for all of it.

    Returns:
        The exit code of the program.

    Raises:
        AssertionError: it did not come to an end.
    """
    (shared / "program").write_text(program)
    command = [_BINARY, *_LAYOUT.split()]
    command += ["-kernel", str(boot.kernel), "-initrd", str(boot.first_files), "-append", _KERNEL]
    command += ["-serial", f"file:{shared / 'console'}"]
    command += ["-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"]
    command += ["-virtfs", f"local,path={shared},mount_tag=shared,security_model=none"]
    with subprocess.Popen(command) as machine:
        try:
            machine.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            machine.kill()
    told = shared / "exit_code"
    assert told.exists(), (
        f"the program did not end in {timeout_s:g} s:\n{_tail(shared / 'console')}{_tail(shared / 'output')}"
    )
    return int(told.read_text())


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""
