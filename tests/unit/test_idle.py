"""A process at idle priority."""

import os
import subprocess
import sys

PROGRAM = """
import os
from cluster_serving.node.topology.idle import be_idle, leave_session
leave_session()
be_idle()
assert os.sched_getscheduler(0) == os.SCHED_IDLE
assert os.getsid(0) == os.getpid()
os.execlp("cat", "cat", "/proc/self/stat")
"""


def test_a_process_and_its_children_run_where_nobody_else_does() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    policy = done.stdout.rpartition(")")[2].split()[38]  # field 41 of proc_pid_stat(5)
    assert int(policy) == os.SCHED_IDLE
