"""Queues that were used before `os.fork`: parent and child get their own answers, and the child does not disturb the parent.

Each program forks in a process of its own, because the process of the tests has threads.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.interrupts import answering

from support.private_redis import PrivateRedis

pytestmark = pytest.mark.usefixtures("unmeasured")

COMMON = """
import asyncio, os, signal, sys, threading, time
import numpy as np
import redis
from cluster_serving.client import AsyncInputQueue, AsyncOutputQueue, ConnectionLost, InputQueue, OutputQueue

port, pid = int(sys.argv[1]), int(sys.argv[2])
signal.alarm(60)

def row(number):
    return np.array([number])

def ask(queue, first, count=100):
    for number in range(first, first + count):
        assert queue.predict(row(number), timeout=20) == 2 * number

def fork(child):
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(60)
        child()
        code = 0
    except BaseException:
        import traceback
        traceback.print_exc()
    finally:
        os._exit(code)

def wait(*children):
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0

def clients():
    with redis.Redis(port=port) as admin:
        return {client["id"] for client in admin.client_list() if client["cmd"] != "client|list"} - {str(admin.client_id())}
"""

PREDICT = """
queue = InputQueue(port=port, name="bench_interrupts")
ask(queue, 0, 2)
queue.enqueue("u1", t=row(1))
assert queue.output_queue.query("nothing") == "[]"
before = clients()
children = [fork(lambda: ask(queue, 1000)), fork(lambda: ask(queue, 2000))]
ask(queue, 3000)
wait(*children)
ask(queue, 4000, 2)
assert before <= clients(), "the connections of the parent are still open"
"""

LOCKED = """
output = OutputQueue(port=port, name="bench_interrupts")
queue = InputQueue(port=port, name="bench_interrupts")
ask(queue, 0, 2)
assert output.query("nothing") == "[]"
os.kill(pid, signal.SIGSTOP)
threads = [
    threading.Thread(target=call, daemon=True)
    for call in (lambda: output.query("nothing"), lambda: queue.enqueue("u1", t=row(1)), lambda: queue.predict(row(5)))
]
for thread in threads:
    thread.start()
time.sleep(0.2)  # all hold their locks
def child():
    os.kill(pid, signal.SIGCONT)
    assert output.query("nothing") == "[]"
    queue.enqueue("u2", t=row(2))
    ask(queue, 100, 10)
wait(fork(child))
"""

GENERATORS = """
queue = InputQueue(port=port, name="bench_interrupts")
records = [(f"u{number}", {"t": row(number)}) for number in range(300)]
results = queue.as_completed(records, window=50)
answers = queue.predict_many(map(row, range(300)), window=50)
first = [next(results), next(answers)]
def child():
    for remaining in (results, answers):
        try:
            list(remaining)
        except ConnectionLost:
            pass
        else:
            raise AssertionError("the child took answers of the parent")
    queue.close()
wait(fork(child))
assert {first[0].uri: first[0].value} | {each.uri: each.value for each in results} == {
    f"u{number}": 2 * number for number in range(300)
}
assert [first[1], *answers] == [2 * number for number in range(300)]
"""

ASYNCIO = """
queue = AsyncInputQueue(port=port, name="bench_interrupts")
output = AsyncOutputQueue(port=port, name="bench_interrupts")

async def ask(first, count=50):
    for number in range(first, first + count):
        assert await queue.predict(row(number), timeout=20) == 2 * number
    assert await output.query("nothing") == "[]"

async def parent():
    waiting = asyncio.create_task(ask(0))
    await ask(500)
    child = fork(lambda: asyncio.run(ask(1000)))
    await asyncio.gather(ask(2000), waiting)
    wait(child)
    before = clients()
    await ask(3000)
    assert before <= clients(), "the connections of the parent are still open"

asyncio.run(parent())
"""


@pytest.mark.parametrize(
    "program", [PREDICT, LOCKED, GENERATORS, ASYNCIO], ids=["predict", "locked", "generators", "asyncio"]
)
def test_a_child_begins_anew(own_redis: PrivateRedis, program: str) -> None:
    command: list[Any] = [sys.executable, "-c", COMMON + program, str(own_redis.port), str(own_redis.pid)]

    with answering(own_redis.port):
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120, check=False
        )

    assert (done.returncode, done.stderr) == (0, "")
