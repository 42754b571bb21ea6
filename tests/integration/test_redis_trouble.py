"""Both kinds of client while Redis is away, loading, a replica, slow, full or cut off: what is retried and what is raised.

After each trouble the same client object works again.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from cluster_serving.client import ConnectionLost, InputQueue, QueueFull, RedisRefused, ResultTimeout, keys
from support.clients import ROW, Client, Connect, answering, in_background
from support.failed_snapshot import failed_snapshot
from support.failover import failover
from support.private_redis import PrivateRedis, fill, free_port, hurry, private_redis, slow_loading
from support.proxy import Proxy, proxy
from support.wait import wait_until

JOB = keys.DEFAULT_JOB


@pytest.fixture
def slow_way(own_redis: PrivateRedis) -> Iterator[Proxy]:
    with proxy(own_redis.port) as way:
        yield way


def works(client: Client, server: PrivateRedis) -> bool:
    """Return whether a record of this client is taken and answered."""
    with answering(server):
        return bool(np.array_equal(client.predict(timeout=90), ROW))


def uris(server: PrivateRedis) -> list[bytes]:
    """Return the uris of the records that have been enqueued."""
    with server.client() as client:
        return [fields[keys.URI] for _, fields in client.xrange(JOB)]


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds until the call raises one of the errors for a Redis in trouble."""
    begun_s = time.monotonic()
    with pytest.raises((ConnectionLost, ResultTimeout)):
        call()
    return time.monotonic() - begun_s


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_calls_under_way_when_redis_restarts(own_redis: PrivateRedis, connect: Connect, number: int) -> None:
    client = connect(port=own_redis.port)
    outcomes: list[Any] = []
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            try:
                outcomes.append(client.predict(timeout=10))
            except Exception as error:
                outcomes.append(error)

    with answering(own_redis), in_background(call):
        wait_until(lambda: len(outcomes) > 20, "calls flow")
        own_redis.stop(number)
        own_redis.start()
        after = len(outcomes)
        wait_until(lambda: len(outcomes) > after + 20, "calls flow again")
        over.set()

    assert {type(outcome) for outcome in outcomes} <= {np.ndarray, ConnectionLost}
    assert isinstance(outcomes[-1], np.ndarray)


def test_threads_that_share_a_client_when_redis_restarts(own_redis: PrivateRedis) -> None:
    """One reads for all, and another takes over when its connection breaks; nobody waits beyond the timeout."""
    outcomes: list[Any] = []
    over = threading.Event()
    with InputQueue(port=own_redis.port) as queue, answering(own_redis), ExitStack() as callers:
        for _ in range(8):
            callers.enter_context(in_background(partial(call_until, over, queue, outcomes)))
        wait_until(lambda: len(outcomes) > 100, "calls flow")
        own_redis.stop(signal.SIGKILL)
        own_redis.start()
        after = len(outcomes)
        wait_until(lambda: len(outcomes) > after + 100, "calls flow again")
        over.set()

    assert {type(outcome) for outcome in outcomes} <= {np.ndarray, ConnectionLost}
    assert {type(outcome) for outcome in outcomes[-8:]} == {np.ndarray}


def call_until(over: threading.Event, queue: InputQueue, outcomes: list[Any]) -> None:
    """Make one call after the other, and note what comes of each."""
    while not over.is_set():
        try:
            outcomes.append(queue.predict(ROW, 10))
        except Exception as error:
            outcomes.append(error)


def test_a_restart_that_nobody_waits_through_is_not_noticed(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port)
    client.enqueue("before")
    works(client, own_redis)

    own_redis.stop(signal.SIGKILL)
    own_redis.start()
    client.enqueue("after")

    assert uris(own_redis)[-1] == b"after"
    assert works(client, own_redis)


def test_records_wait_for_a_redis_that_is_away(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port, patience_s=30)
    own_redis.stop()
    ends: list[Any] = []

    with in_background(lambda: ends.append(client.enqueue_many(100))):
        time.sleep(0.1)  # not to be waited for: whether it has tried already makes no difference
        own_redis.start()

    assert ends == [100]
    assert uris(own_redis) == [b"r%d" % n for n in range(100)]


def test_a_call_waits_for_a_redis_that_is_away(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port, patience_s=30)
    own_redis.stop()
    answers: list[Any] = []

    with answering(own_redis), in_background(lambda: answers.append(client.predict(30))):
        own_redis.start()

    assert np.array_equal(answers[0], ROW)


def test_patience_ends(connect: Connect) -> None:
    client = connect(port=free_port(), patience_s=0.3)

    for call in (lambda: client.enqueue("a"), client.predict, lambda: client.enqueue_many(3)):
        with pytest.raises(ConnectionLost, match=r"refused|Connect call failed") as lost:
            call()
        assert (lost.value.unsent, lost.value.accepted) == (True, 0)


def test_the_timeout_of_a_call_is_shorter_than_patience(connect: Connect) -> None:
    client = connect(port=free_port(), patience_s=300)

    assert seconds(lambda: client.predict(0.3)) < 60


def test_a_redis_that_loads_is_waited_for(tmp_path: Path, connect: Connect) -> None:
    with private_redis(tmp_path, *slow_loading(10000)) as server:
        with server.client() as client:
            fill(client, 800)
        patient, hasty = connect(port=server.port, patience_s=30), connect(port=server.port, patience_s=0.2)
        server.stop()
        with in_background(server.start):
            with pytest.raises(ConnectionLost):
                hasty.enqueue("hasty")
            with in_background(lambda: patient.enqueue("patient")):
                hurry(server)

        assert uris(server) == [b"patient"]
        assert works(hasty, server)


@pytest.mark.parametrize("stale", ["yes", "no"])
def test_a_read_only_replica_is_waited_for(own_redis: PrivateRedis, connect: Connect, stale: str) -> None:
    with own_redis.client() as admin:
        admin.config_set("replica-serve-stale-data", stale)
        client, hasty = connect(port=own_redis.port, patience_s=30), connect(port=own_redis.port, patience_s=0.1)
        works(client, own_redis)
        admin.replicaof("127.0.0.1", free_port())

        for call in (lambda: hasty.enqueue("hasty"), hasty.predict):
            with pytest.raises(ConnectionLost, match=r"(?i)read.only|Link with MASTER is down"):
                call()
        with in_background(lambda: client.enqueue("waits")):
            admin.replicaof("NO", "ONE")

        assert uris(own_redis) == [b"waits"]
        assert works(client, own_redis)
        assert works(hasty, own_redis)


def test_a_failover(tmp_path: Path, connect: Connect) -> None:
    with failover(tmp_path) as servers:
        client = connect(url=servers.url, patience_s=90)  # a Sentinel that the machine held up rests for 30 s (TILT)
        client.enqueue("before")
        servers.wait_for_replica()

        servers.kill_master()
        client.enqueue("after")

        assert servers.has_new_master()
        servers.be_patient()
        assert uris(servers.replica) == [b"before", b"after"]
        assert works(client, servers.replica)


def test_a_slow_redis_works(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect) -> None:
    client = connect(port=slow_way.port)
    slow_way.delay_s = 0.05

    assert works(client, own_redis)


def test_a_redis_that_is_slow_within_the_timeout(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect) -> None:
    client = connect(port=slow_way.port, timeout_s=60)
    assert works(client, own_redis)

    slow_way.delay_s = 2.5  # as a fork of a large Redis, or a slow command of another client
    with answering(own_redis):
        assert np.array_equal(client.predict(timeout=60), ROW)
        assert np.array_equal(client.predict_many(2, timeout=60), [ROW, ROW])


def test_a_redis_slower_than_the_timeout(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect) -> None:
    client = connect(port=slow_way.port, timeout_s=5, patience_s=5)
    assert works(client, own_redis)

    slow_way.delay_s = 60.0
    assert seconds(lambda: client.predict(0.5)) < 60
    assert seconds(lambda: client.enqueue("slow")) < 60

    slow_way.delay_s = 0.0
    assert works(client, own_redis)


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_cut_in_the_middle_of_a_record(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect, keep: float) -> None:
    client = connect(port=slow_way.port)
    client.enqueue("before")
    cut = slow_way.cut_command(b"broken", keep)

    with pytest.raises(ConnectionLost) as lost:
        client.enqueue("broken")

    assert cut.happened.is_set()
    assert not lost.value.unsent
    assert uris(own_redis) == [b"before"]
    client.enqueue("broken")
    assert uris(own_redis) == [b"before", b"broken"]


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_cut_in_the_middle_of_the_reply_to_a_record(
    own_redis: PrivateRedis, slow_way: Proxy, connect: Connect, keep: float
) -> None:
    """Redis took the record and the client cannot know: it is told so, and nothing is enqueued again behind its back."""
    client = connect(port=slow_way.port)
    client.enqueue("before")
    slow_way.cut_reply(b"-", keep)

    with pytest.raises(ConnectionLost) as lost:
        client.enqueue("taken")

    assert not lost.value.unsent
    assert uris(own_redis) == [b"before", b"taken"]
    assert works(client, own_redis)


def test_cut_in_the_middle_of_many_records(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect) -> None:
    client = connect(port=slow_way.port)
    client.enqueue("before")
    slow_way.cut_command(b"r130", 0.0)

    with pytest.raises(ConnectionLost) as lost:
        client.enqueue_many(200)

    assert lost.value.accepted == 128
    assert len(uris(own_redis)) == 1 + 128


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_cut_in_the_middle_of_a_result(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect, keep: float) -> None:
    client = connect(port=slow_way.port)
    with answering(own_redis):
        client.predict()
        cut = slow_way.cut_reply(b"tensor:y", keep)

        with pytest.raises(ConnectionLost):
            client.predict()

        assert cut.happened.is_set()
        assert np.array_equal(client.predict(), ROW)


def test_cut_while_a_call_is_sent(own_redis: PrivateRedis, slow_way: Proxy, connect: Connect) -> None:
    client = connect(port=slow_way.port)
    with answering(own_redis):
        client.predict()
        slow_way.cut_command(b"tensor:t", 0.5)

        with pytest.raises(ConnectionLost):
            client.predict()

        assert np.array_equal(client.predict(), ROW)


def test_a_password_that_is_wanted_from_now_on(own_redis: PrivateRedis, connect: Connect) -> None:
    """No patience helps, so none is spent."""
    client = connect(port=own_redis.port, patience_s=30)
    works(client, own_redis)
    with own_redis.client() as admin:
        admin.config_set("requirepass", "s3cret")
        with redis.Redis(port=own_redis.port, password="s3cret") as other:  # noqa: S106 - of this test alone
            other.client_kill_filter(skipme=True, _type="normal")

        for call in (lambda: client.enqueue("a"), client.predict):
            with pytest.raises(ConnectionLost, match="it wants a password"):
                call()

        with redis.Redis(port=own_redis.port, password="s3cret") as other:  # noqa: S106 - of this test alone
            other.config_set("requirepass", "")
        assert works(client, own_redis)


def test_a_redis_that_cannot_write_its_files(own_redis: PrivateRedis, connect: Connect) -> None:
    """Its own words are sixty, and tell nothing of the cause."""
    client = connect(port=own_redis.port, patience_s=0.1)
    assert works(client, own_redis)
    with failed_snapshot(own_redis):
        for call in (lambda: client.enqueue("a"), client.predict):
            with pytest.raises(
                ConnectionLost, match="MISCONF: it cannot write its files, and refuses writes until it can;"
            ):
                call()

    assert works(client, own_redis)


def test_records_wait_for_memory(own_redis: PrivateRedis, connect: Connect) -> None:
    client, hasty = connect(port=own_redis.port, patience_s=30), connect(port=own_redis.port, patience_s=0.1)
    with own_redis.client() as admin:
        admin.config_set("maxmemory", "1")
        for call in (lambda: hasty.enqueue("a"), hasty.predict, lambda: hasty.enqueue_many(100)):
            with pytest.raises(QueueFull, match=r"^Redis queue is full, please wait .*\(.*memory") as full:
                call()
            assert full.value.accepted == 0
        with in_background(lambda: client.enqueue("waits")):
            admin.config_set("maxmemory", "0")

    assert uris(own_redis) == [b"waits"]
    assert works(hasty, own_redis)


def test_records_wait_while_nodes_say_that_nothing_is_admitted(own_redis: PrivateRedis, connect: Connect) -> None:
    client, hasty = connect(port=own_redis.port, patience_s=30), connect(port=own_redis.port, patience_s=0.1)
    with own_redis.client() as admin:
        admin.set(keys.full_key(JOB), "Redis uses 91 % of its memory")
        for call in (lambda: hasty.enqueue("a"), hasty.predict, lambda: hasty.predict_many(3)):
            with pytest.raises(QueueFull) as full:
                call()
            assert str(full.value) == (
                "Redis queue is full, please wait for inference or delete the unprocessed records. "
                "(Redis uses 91 % of its memory)"
            )
        with in_background(lambda: client.enqueue_many(100)):
            admin.delete(keys.full_key(JOB))

    assert len(uris(own_redis)) == 100
    assert works(hasty, own_redis)


def test_a_queue_that_was_full_is_asked_before_it_is_sent_anything(own_redis: PrivateRedis, connect: Connect) -> None:
    """Else each attempt of each client would bring Redis the whole of its records, only to be told no."""
    client = connect(port=own_redis.port, patience_s=30)
    image = np.zeros(200_000, np.float32)
    with own_redis.client() as admin:
        admin.hset(keys.limits_key(JOB), "maxQueueLength", 1)
        client.enqueue("a")

        def received() -> int:
            return int(admin.info("stats")["total_net_input_bytes"])

        def questions() -> int:
            return int(admin.info("commandstats").get("cmdstat_eval", {}).get("calls", 0))

        with in_background(lambda: client.enqueue("b", image)):
            wait_until(lambda: questions() >= 3, "it has been refused, and has asked")
            before = received(), questions()
            wait_until(lambda: questions() >= before[1] + 3, "it asks again and again")
            assert received() - before[0] < image.nbytes
            admin.xtrim(JOB, maxlen=0)

    assert uris(own_redis) == [b"b"]


def test_many_clients_never_fill_a_queue_beyond_its_limit(own_redis: PrivateRedis, connect: Connect) -> None:
    clients = [connect(port=own_redis.port, patience_s=0) for _ in range(4)]
    refused: list[QueueFull] = []

    def fill(client: Client) -> None:
        with pytest.raises(QueueFull) as full:
            client.enqueue_many(1000)
        refused.append(full.value)

    with own_redis.client() as admin:
        admin.hset(keys.limits_key(JOB), "maxQueueLength", 700)
        with ExitStack() as filling:
            for client in clients:
                filling.enter_context(in_background(partial(fill, client)))

    assert len(uris(own_redis)) == 700
    assert sum(error.accepted for error in refused) == 700


@pytest.mark.parametrize("key", [JOB, keys.limits_key(JOB), keys.full_key(JOB)])
def test_a_key_of_another_type_is_named(own_redis: PrivateRedis, connect: Connect, key: str) -> None:
    client = connect(port=own_redis.port)
    with own_redis.client() as admin:
        admin.rpush(key, "a list")

        for call in (lambda: client.enqueue("a"), client.predict):
            with pytest.raises(RedisRefused, match=f"job {JOB}: .*WRONGTYPE"):
                call()

        admin.delete(key)
        assert not admin.xlen(JOB), "nothing of it has stayed"
    assert works(client, own_redis)


def test_a_reply_key_of_another_type(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port)
    works(client, own_redis)
    with own_redis.client() as admin:
        (key,) = admin.keys(keys.reply_key(JOB, "*"))
        admin.delete(key)
        admin.rpush(key, "a list")

        for _ in range(2):
            with pytest.raises(RedisRefused, match="WRONGTYPE"):
                client.predict()

        assert len(uris(own_redis)) <= 2, "no record is enqueued twice"
        admin.delete(key, JOB)
    assert works(client, own_redis)


def test_a_reply_stream_that_vanishes_costs_no_later_call(own_redis: PrivateRedis, connect: Connect) -> None:
    """The result that was published to the missing stream is gone; the error says why, and the next call works."""
    client = connect(port=own_redis.port)
    works(client, own_redis)
    with own_redis.client() as admin:
        (key,) = admin.keys(keys.reply_key(JOB, "*"))

        def delete_and_see_it_again() -> None:
            wait_until(lambda: uris(own_redis), "the record is there")
            wait_until(lambda: admin.info("clients")["blocked_clients"], "the client waits")
            admin.delete(key)
            wait_until(lambda: admin.exists(key), "the stream is made again", 8)

        with in_background(delete_and_see_it_again), pytest.raises(ResultTimeout, match="the reply stream was deleted"):
            client.predict(10)
        admin.delete(JOB)
    assert works(client, own_redis)
