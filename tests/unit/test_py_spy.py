"""Obstacles that keep py-spy from looking into a process, and the advice on how to mend them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_serving.client.servers.process.exit_codes import ExitCode, Fault
from cluster_serving.node.commands.processes import FoundProcess
from cluster_serving.node.commands.py_spy import Ended, how_to_mend, spy

COMMAND = ["CLUSTER_SERVING_HOME=/a b", "/bin/cluster-serving", "dump"]
SUDO = "sudo env 'CLUSTER_SERVING_HOME=/a b' /bin/cluster-serving dump"


@pytest.mark.parametrize(
    ("owner", "is_root", "scope", "contained", "said"),
    [
        ("ann", False, 1, False, f"it belongs to ann; run this as ann, or as root: {SUDO}"),
        ("", False, 1, False, f"kernel.yama.ptrace_scope is 1; run it as root: {SUDO}; or allow it"),
        ("", False, 2, False, "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("", False, 0, False, f"run it as root: {SUDO}"),
        ("", True, 3, True, "ptrace_scope is 3, and forbids tracing until the machine boots"),
        ("", True, 1, True, "--cap-add SYS_PTRACE; compose and stacks: cap_add: [SYS_PTRACE]"),
        ("ann", True, 0, False, "even for root"),
    ],
)
def test_how_to_get_permission(owner: str, is_root: bool, scope: int, contained: bool, said: str) -> None:
    assert said in how_to_mend(owner, is_root, scope, contained, COMMAND)


def test_a_process_that_has_ended() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)

    with pytest.raises(Ended, match=rf"writer \(pid {pid}\) has ended meanwhile"):
        spy(FoundProcess("writer", "writer", pid), "dump")


def test_what_is_no_python() -> None:
    process = subprocess.Popen(["/bin/sleep", "60"])
    try:
        with pytest.raises(Fault, match=r"py-spy cannot look into x \(pid \d+\): Error: Failed to find python version"):
            spy(FoundProcess("x", "x", process.pid), "dump")
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have somebody else's process")
def test_without_permission() -> None:
    """As a user who may not look at our process; the program is called by a descriptor, for its directory may be closed."""
    program = f"""
import os, sys
from cluster_serving.node.commands import py_spy, processes
os.setresuid(65534, 65534, 65534)
try:
    py_spy.spy(processes.FoundProcess("worker", "worker-0", {os.getpid()}), "dump")
except py_spy.Fault as fault:
    print(fault)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert f"no permission to look into worker-0 (pid {os.getpid()}): " in done.stdout, done.stderr


def test_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Fault, match="pip install py-spy") as caught:
        spy(FoundProcess("worker", "worker-0", os.getpid()), "dump")

    assert caught.value.exit_code == ExitCode.USAGE
