"""Exceptions of signal handlers at random instants into every call of every queue; ten minutes of it: `python -m bench.interrupts`.

All in processes of their own, so that a crash is a failure and not the end of the test run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from support.private_redis import PrivateRedis

_SEED = 1


pytestmark = pytest.mark.usefixtures("unmeasured")

PACKED = """
from cluster_serving.client.protocol.resp import pack

class Number(int):
    def __str__(self):
        raise KeyboardInterrupt

try:
    pack(["XREAD", "COUNT", Number(64)])
except KeyboardInterrupt:
    print("interrupted")
"""

CLOSED = """
import signal, sys, threading, time
import redis
from cluster_serving.client import ConnectionLost, InputQueue, OutputQueue

queue, output = (kind(port=sys.argv[1], name="closed_by_handler") for kind in (InputQueue, OutputQueue))
signal.signal(signal.SIGALRM, lambda *_: (queue.close(), output.close()))
def interrupt():
    with redis.Redis(port=int(sys.argv[1])) as client:
        while not any(each["cmd"] == "xread" for each in client.client_list()):
            time.sleep(0.05)
    signal.setitimer(signal.ITIMER_REAL, 0.1)

threading.Thread(target=interrupt).start()
try:
    queue.predict([1.0], timeout=60)
except ConnectionLost:
    print(queue.enqueue("a", t=1) and output.query("a"))
"""


def run(program: str, server: PrivateRedis) -> str:
    """Return the output of a program."""
    command = [sys.executable, "-c", program, str(server.port)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=120, check=True).stdout.strip()


def test_an_interrupt_while_a_number_is_packed_does_not_kill_the_interpreter(redis_server: PrivateRedis) -> None:
    """The packer of hiredis takes the null pointer of an exception for the text of the number."""
    assert run(PACKED, redis_server) == "interrupted"


def test_a_signal_handler_may_close_the_queue_that_it_interrupts(redis_server: PrivateRedis) -> None:
    redis_server.serve_once("closed_by_handler")
    assert run(CLOSED, redis_server) == "[]"


def test_no_interrupt_makes_an_answer_wrong_or_a_call_hang_or_python_crash(own_redis: PrivateRedis) -> None:
    limits = "--calls=2000", "--seconds=30"
    command = [sys.executable, "-m", "bench.interrupts", *limits, f"--seed={_SEED}", f"--port={own_redis.port}"]

    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr
