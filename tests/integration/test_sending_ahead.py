"""`predict_many` sends a chunk before it has seen what came of the one before: nothing is lost by that, and nothing sent twice."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from cluster_serving.client import ConnectionLost, InputQueue, InvalidValue, QueueFull, RedisRefused, keys
from support.clients import ANSWER, ROW, answering, in_background, replied
from support.private_redis import PrivateRedis
from support.proxy import proxy
from support.wait import wait_until

JOB = keys.DEFAULT_JOB
MANY = 1000


@pytest.fixture
def queue(own_redis: PrivateRedis) -> Iterator[InputQueue]:
    with InputQueue(port=own_redis.port, patience_s=30) as queue:
        yield queue


def is_answered(queue: InputQueue, count: int = 1) -> bool:
    return all(np.array_equal(np.asarray(answer), ROW) for answer in queue.predict_many([ROW] * count, timeout=30))


def test_every_record_is_sent_once_through_a_queue_that_is_full_again_and_again(
    own_redis: PrivateRedis, queue: InputQueue
) -> None:
    with own_redis.client() as admin:
        admin.hset(keys.limits_key(JOB), "maxQueueLength", 100)
        with answering(own_redis):
            assert is_answered(queue, MANY)
        assert admin.xlen(JOB) == 0


def test_records_that_wait_for_room_are_not_sent_twice(own_redis: PrivateRedis, queue: InputQueue) -> None:
    uris: list[bytes] = []

    def answer() -> None:
        with own_redis.client() as admin:
            while len(uris) < MANY:
                for entry_id, fields in admin.xrange(JOB):
                    uris.append(fields[keys.URI])
                    admin.xadd(fields[keys.REPLY], replied(fields[keys.URI], ANSWER))
                    admin.xdel(JOB, entry_id)

    with own_redis.client() as admin:
        admin.hset(keys.limits_key(JOB), "maxQueueLength", 7)
        with in_background(answer):
            assert is_answered(queue, MANY)

    assert len({*uris}) == len(uris) == MANY


@pytest.mark.usefixtures("patient")
def test_without_patience_a_full_queue_is_an_error(own_redis: PrivateRedis) -> None:
    with own_redis.client() as admin, InputQueue(port=own_redis.port, patience_s=0) as queue:
        admin.hset(keys.limits_key(JOB), "maxQueueLength", 100)
        with pytest.raises(QueueFull, match="holds maxQueueLength records"):
            is_answered(queue, MANY)
        assert admin.xlen(JOB) == 100
        admin.delete(JOB)
        with answering(own_redis):
            assert is_answered(queue)


def test_others_use_the_queue_meanwhile(own_redis: PrivateRedis, queue: InputQueue) -> None:
    over = threading.Event()
    enqueued: list[str] = []

    def enqueue() -> None:
        while not over.is_set():
            enqueued.append(queue.enqueue(f"other-{len(enqueued)}", t=ROW))

    def predict() -> None:
        while not over.is_set():
            assert is_answered(queue, 200)

    with answering(own_redis), in_background(enqueue), in_background(predict):
        try:
            for _ in range(3):
                assert is_answered(queue, MANY)
        finally:
            over.set()

    assert len({*enqueued}) == len(enqueued) > 0


def test_one_who_leaves_early_is_in_nobodys_way(own_redis: PrivateRedis, queue: InputQueue) -> None:
    with answering(own_redis):
        answers = queue.predict_many([ROW] * MANY, window=200)
        for _ in range(5):
            next(answers)
        answers.close()

        assert queue.enqueue("next", t=ROW)
        assert is_answered(queue, 3)


def test_a_queue_that_was_closed_with_records_on_their_way(own_redis: PrivateRedis, queue: InputQueue) -> None:
    with answering(own_redis):
        answers = queue.predict_many([ROW] * MANY, window=200)
        next(answers)
        queue.close()

        assert is_answered(queue, 3)
        answers.close()


def test_a_connection_that_breaks(own_redis: PrivateRedis) -> None:
    with proxy(own_redis.port) as way, InputQueue(port=way.port) as queue, answering(own_redis):
        assert is_answered(queue)
        sent = iter(range(MANY))

        def source() -> Iterator[Any]:
            for number in sent:
                if number == 500:
                    way.cut_command(b"XADD", 0.5)
                yield ROW

        with pytest.raises(ConnectionLost):
            for _ in queue.predict_many(source()):
                pass

        assert next(sent) < MANY - 1, "it was told before all were sent"
        assert is_answered(queue, 3)


def answers(admin: Any) -> int:
    """Return how many records have been answered, and deleted."""
    return int(admin.info("commandstats").get("cmdstat_xdel", {}).get("calls", 0))


@pytest.mark.usefixtures("whole_chunks")  # when the source pauses, all that it gave has been sent
def test_redis_restarts(own_redis: PrivateRedis, queue: InputQueue) -> None:
    """Replies that Redis sent before it ended are heard, and the next records go over a new connection: nothing is lost."""

    def source() -> Iterator[Any]:
        for at in range(MANY):
            if at == 512:
                with own_redis.client() as admin:
                    wait_until(lambda: answers(admin) == 512, "all are answered")
                own_redis.stop(signal.SIGTERM)
                own_redis.start()
            yield ROW

    with answering(own_redis):
        assert all(np.array_equal(np.asarray(answer), ROW) for answer in queue.predict_many(source()))


INTERRUPTED = """
import os, signal, sys, threading
from contextlib import suppress
from itertools import count
import numpy as np
from cluster_serving.client import ConnectionLost, InputQueue

redis, many, row = int(sys.argv[1]), int(sys.argv[3]), np.zeros(3, np.float32)
queue, begun, over = InputQueue(port=sys.argv[2], patience_s=30), threading.Event(), threading.Event()

def enqueue():
    for number in count():
        if over.is_set():
            return
        with suppress(ConnectionLost):
            queue.enqueue(f"other-{number}", t=row)
            begun.set()

def source():
    for at in range(many):
        if at == 512:
            os.kill(redis, signal.SIGSTOP)
            threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
        yield row

beside = threading.Thread(target=enqueue)
beside.start()
begun.wait(60)
try:
    list(queue.predict_many(source()))
    sys.exit("was not interrupted")
except KeyboardInterrupt:
    pass
finally:
    os.kill(redis, signal.SIGCONT)
    over.set()
    beside.join()
assert all(np.array_equal(answer, row) for answer in queue.predict_many([row] * many, timeout=30))
"""


@pytest.mark.usefixtures("unmeasured")
def test_ctrl_c_while_redis_says_nothing(own_redis: PrivateRedis) -> None:
    """Others who use the queue send none of theirs again, and read nobody else's replies."""
    command = [sys.executable, "-c", INTERRUPTED, str(own_redis.pid), str(own_redis.port), str(MANY)]

    with answering(own_redis):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    with own_redis.client() as client:
        uris = [fields[keys.URI] for _, fields in client.xrange(JOB)]
    assert len(uris) == len({*uris}) > 0


def test_a_redis_that_takes_nothing_for_a_while(own_redis: PrivateRedis, queue: InputQueue) -> None:
    """A replica takes no records; it is no fault of theirs, and nothing of them has been taken."""
    with own_redis.client() as admin, answering(own_redis):
        assert is_answered(queue)

        def demote() -> None:
            admin.replicaof("127.0.0.1", "1")

        def promote() -> None:
            wait_until(lambda: "errorstat_READONLY" in admin.info("errorstats"), "somebody is refused")
            admin.replicaof("no", "one")

        def source() -> Iterator[Any]:
            for at in range(MANY):
                if at == 500:
                    wait_until(lambda: not admin.xlen(JOB), "all are answered")
                    demote()
                yield ROW

        with in_background(promote):
            assert all(np.array_equal(np.asarray(answer), ROW) for answer in queue.predict_many(source()))


def test_a_job_whose_key_holds_something_else(own_redis: PrivateRedis, queue: InputQueue) -> None:
    with own_redis.client() as admin:
        queue.enqueue("first", t=ROW)  # and so there is a connection
        admin.delete(JOB)
        admin.rpush(JOB, "a list")
        with pytest.raises(RedisRefused, match=f"job {JOB}: .*WRONGTYPE"):
            is_answered(queue, MANY)
        admin.delete(JOB)
        with answering(own_redis):
            assert is_answered(queue, 3)


def test_a_value_that_cannot_be_sent(own_redis: PrivateRedis, queue: InputQueue) -> None:
    with answering(own_redis):
        with pytest.raises(InvalidValue, match="input 't'"):
            list(queue.predict_many([*[ROW] * 100, cast("Any", object()), *[ROW] * 100]))
        assert is_answered(queue, 3)
