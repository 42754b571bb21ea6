"""Calls whose result does not come, or comes while nobody reads: no node, a flushed Redis, a failover, a caller that pauses."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, ConnectionLost, InputQueue, ResultTimeout, keys
from cluster_serving.client.protocol import reply_stream
from cluster_serving.client.protocol.absence import Inquiry
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.node.supervisor.heartbeat import LISTING
from support.clients import ROW, Connect, answer_all, answering, in_background, replied
from support.private_redis import PrivateRedis
from support.wait import wait_until

pytestmark = pytest.mark.usefixtures("patient")

LONG_S = 60.0
"""Timeout that no call of these tests waits for."""
PAUSE_MS = 600_000


def timed_out(call: Callable[[], Any]) -> tuple[str, float]:
    """Return the text of the `ResultTimeout` that a call raises, and the seconds that the call takes."""
    begun_s = time.monotonic()
    with pytest.raises(ResultTimeout) as caught:
        call()
    return str(caught.value), time.monotonic() - begun_s


def list_node(client: Any, job: str) -> None:
    """Write limits and list a node, as its heartbeat does."""
    client.hset(keys.limits_key(job), "maxQueueLength", "0")
    client.eval(LISTING, 1, keys.NODES, keys.node_key(job, "n"))
    client.zincrby(keys.NODES, 3600, keys.node_key(job, "n"))


def test_a_job_that_no_node_has_ever_served_is_told_at_once(own_redis: PrivateRedis, connect: Connect) -> None:
    with own_redis.client() as admin:
        list_node(admin, "other")
    client = connect(port=own_redis.port, name="misspelled")

    for call in (lambda: client.predict(LONG_S), lambda: client.predict_many(3, LONG_S)):
        why, elapsed_s = timed_out(call)

        where = f"redis://localhost:{own_redis.port}/0"
        assert f"no node of job misspelled lives on {where}; jobs there: other" in why
        assert elapsed_s < LONG_S / 4


@pytest.mark.parametrize("timeout", [0, -1])
@pytest.mark.parametrize("many", [False, True])
def test_a_call_of_asyncio_without_time_to_connect_tells_of_the_nodes(
    own_redis: PrivateRedis, timeout: float, many: bool
) -> None:
    async def ask() -> None:
        async with AsyncInputQueue(port=own_redis.port) as queue:
            await (anext(queue.predict_many([ROW], timeout)) if many else queue.predict(ROW, timeout))

    with pytest.raises(ResultTimeout, match="no node of job serving_stream lives on"):
        asyncio.run(ask())


def test_as_completed_without_a_node(own_redis: PrivateRedis) -> None:
    with InputQueue(port=own_redis.port) as queue:
        why, elapsed_s = timed_out(lambda: list(queue.as_completed([("a", {"t": ROW})], LONG_S)))

    assert "no node of job serving_stream lives" in why
    assert elapsed_s < LONG_S / 4


def test_nodes_that_were_there_are_waited_for(own_redis: PrivateRedis, connect: Connect) -> None:
    """The limits for admission stay after the last node has gone."""
    with own_redis.client() as admin:
        admin.hset(keys.limits_key(keys.DEFAULT_JOB), "maxQueueLength", "0")
    client = connect(port=own_redis.port)

    why, elapsed_s = timed_out(lambda: client.predict(1.5))

    assert elapsed_s >= 1.5
    assert "no node of job serving_stream lives" in why


def test_a_node_that_is_slow_or_starts_just_now_is_waited_for(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port)
    with own_redis.client() as admin:
        list_node(admin, keys.DEFAULT_JOB)

        why, elapsed_s = timed_out(lambda: client.predict(1.5))

        assert elapsed_s >= 1.5
        assert (
            f"live nodes of job serving_stream on redis://localhost:{own_redis.port}/0: 1, records under way: 1" in why
        )
        admin.delete(keys.DEFAULT_JOB)
    with answering(own_redis):
        assert np.array_equal(client.predict(LONG_S), ROW)


def test_a_record_that_redis_has_lost_is_not_waited_for(own_redis: PrivateRedis, connect: Connect) -> None:
    client = connect(port=own_redis.port)
    with answering(own_redis):
        client.predict()

    def flush() -> None:
        with own_redis.client() as admin:
            wait_until(lambda: admin.xlen(keys.DEFAULT_JOB), "the record is there")
            wait_until(lambda: admin.info("clients")["blocked_clients"], "the client waits")
            admin.flushall()

    with in_background(flush):
        why, elapsed_s = timed_out(lambda: client.predict(LONG_S))

    assert "the reply stream was deleted meanwhile" in why
    assert elapsed_s < LONG_S / 4
    with answering(own_redis):
        assert np.array_equal(client.predict(), ROW)


def lose_records(admin: Any, job: str) -> None:
    """Do as a failover does to a client that is not reading: the new master has the reply streams, and lacks the records."""
    admin.delete(job)
    admin.client_kill_filter(_type="normal", skipme=True)


def test_records_that_a_failover_loses_between_two_reads_are_not_waited_for(own_redis: PrivateRedis) -> None:
    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue:
        list_node(admin, queue.name)

        def rows() -> Iterator[Any]:
            for then in (answer_all, lose_records):
                yield ROW
                time.sleep(0.05)  # a slow source: both rows are sent
                yield ROW
                then(admin, queue.name)

        why, elapsed_s = timed_out(lambda: list(queue.predict_many(rows(), LONG_S)))

    assert "Redis has lost the record" in why
    assert elapsed_s < LONG_S / 4


def test_as_completed_does_not_wait_for_records_that_a_failover_loses(own_redis: PrivateRedis) -> None:
    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue:
        list_node(admin, queue.name)

        def answer_two() -> None:
            wait_until(lambda: admin.xlen(queue.name) == 3, "the records are there")
            admin.xdel(queue.name, admin.xrevrange(queue.name, count=1)[0][0])
            answer_all(admin, queue.name)

        results = queue.as_completed(((str(n), {"t": ROW}) for n in range(3)), LONG_S)
        with in_background(answer_two):
            assert {next(results).uri, next(results).uri} == {"0", "1"}
        lose_records(admin, queue.name)
        why, elapsed_s = timed_out(lambda: next(results))

    assert "Redis has lost the record" in why
    assert elapsed_s < LONG_S / 4


def answer_first(admin: Any, job: str) -> None:
    """Answer the first record of a job."""
    wait_until(lambda: admin.xlen(job), "a record is there")
    ((entry, fields),) = admin.xrange(job, count=1)
    admin.xadd(fields[keys.REPLY], replied(fields[keys.URI], {}))
    admin.xdel(job, entry)


def hopes(admin: Any) -> int:
    """Return how many times Redis has been asked for the limits, as for hope."""
    return int(admin.info("commandstats")["cmdstat_hget"]["calls"])


@pytest.mark.parametrize("broken", [False, True], ids=["first_connection", "broken_connection"])
def test_a_client_that_waits_does_not_read_its_records_again(own_redis: PrivateRedis, broken: bool) -> None:
    row = np.zeros(4 << 20, np.uint8)
    sent: list[int] = []

    def answer_when_asked_twice() -> None:
        wait_until(lambda: admin.xlen(queue.name) == 3 - broken, "the records are there")
        before, begun = hopes(admin), admin.info("stats")["total_net_output_bytes"]
        wait_until(lambda: hopes(admin) >= before + 2, "the client has asked twice")
        sent.append(admin.info("stats")["total_net_output_bytes"] - begun)
        answer_all(admin, queue.name)

    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue:
        list_node(admin, queue.name)
        results = queue.as_completed(((str(n), {"t": row}) for n in range(3)), LONG_S)
        if broken:
            with in_background(lambda: answer_first(admin, queue.name)):
                assert next(results).uri == "0"
            admin.client_kill_filter(_type="normal", skipme=True)

        with in_background(answer_when_asked_twice):
            assert len(list(results)) == 3 - broken

    assert sent[0] < row.nbytes


def test_replies_of_a_new_master_whose_clock_is_behind(own_redis: PrivateRedis, connect: Connect) -> None:
    """The new master has the reply stream without its last entry, and gives smaller ids."""
    client = connect(port=own_redis.port)
    with own_redis.client() as admin, answering(own_redis):
        client.predict()
        (key,) = admin.keys(keys.reply_key(keys.DEFAULT_JOB, "*"))
        future_ms = int(time.time() * 1000) + 3_600_000
        admin.xadd(key, replied(b"nobody's", {}), id=f"{future_ms}-0")
        client.predict()  # reads the entry

        admin.delete(key)
        admin.xgroup_create(key, "client", "$", mkstream=True)
        admin.client_kill_filter(_type="normal", skipme=True)
        with suppress(ConnectionLost):  # an event loop that sleeps notices the end of a connection during the next call
            client.predict()

        assert np.array_equal(client.predict(), ROW)


def test_a_result_that_comes_before_redis_is_asked_for_its_record_is_given(
    own_redis: PrivateRedis, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last read waited in vain. When Redis is asked, the record has left the stream, because its result has come."""
    ask = Inquiry.for_hope
    client = connect(port=own_redis.port)
    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue:

        def ask_late(inquiry: Inquiry, entries: Collection[bytes], *enough: int) -> list[Any]:
            answer_all(admin, keys.DEFAULT_JOB)
            return ask(inquiry, entries, *enough)

        monkeypatch.setattr(Inquiry, "for_hope", ask_late)

        assert np.array_equal(client.predict(LONG_S), ROW)
        assert [result.uri for result in queue.as_completed([("a", {"t": ROW})], LONG_S)] == ["a"]


def life_ms(admin: Any) -> int:
    """Return the time to live of the only reply stream."""
    (key,) = admin.keys(keys.reply_key(keys.DEFAULT_JOB, "*"))
    return int(admin.pttl(key))


def test_a_client_that_vanishes_costs_a_minute_once_it_has_its_results(
    own_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue, answering(own_redis):
        assert len(list(queue.predict_many([ROW] * 50))) == 50
        assert life_ms(admin) > 60_000

        monkeypatch.setattr(reply_stream, "_RENEWAL_S", 0)
        queue.predict(ROW)

        assert life_ms(admin) <= 60_000
        (key,) = admin.keys(keys.reply_key(keys.DEFAULT_JOB, "*"))
        assert admin.memory_usage(key, samples=0) < 8_000, "one result"


def test_a_queue_that_is_dropped_leaves_no_stream(own_redis: PrivateRedis) -> None:
    with own_redis.client() as admin, answering(own_redis):
        queue = InputQueue(port=own_redis.port)
        queue.predict(ROW)
        assert admin.keys(keys.reply_key(keys.DEFAULT_JOB, "*"))

        del queue

        wait_until(lambda: not admin.keys(keys.reply_key(keys.DEFAULT_JOB, "*")), "the reply stream is deleted", 30)


def test_redis_keeps_the_results_of_a_caller_that_pauses(own_redis: PrivateRedis) -> None:
    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue, answering(own_redis):
        queue.predict(ROW)
        assert life_ms(admin) <= 60_000, "a lone call leaves little behind"
        for timeout, least_ms in ((5, PAUSE_MS), (3600, 3_600_000)):
            for number, _ in enumerate(queue.predict_many([ROW] * 3, timeout)):
                if number == 0:
                    assert life_ms(admin) > least_ms

    with own_redis.client() as admin, InputQueue(port=own_redis.port) as queue, answering(own_redis):
        results = queue.as_completed(((f"u{number}", {"t": ROW}) for number in range(3)), timeout=5)
        next(results)
        assert life_ms(admin) > PAUSE_MS
        assert len(list(results)) == 2


@pytest.mark.usefixtures("whole_chunks")
def test_results_that_came_in_time_are_read_after_the_deadline(own_redis: PrivateRedis) -> None:
    """The caller was busy meanwhile. Each result is an entry of its own, and the first result is the last entry."""
    many, timeout_s = 192, 0.3  # whole chunks, so that all are sent before the source pauses
    answered = threading.Event()

    def answer() -> None:
        with own_redis.client() as admin:
            wait_until(lambda: admin.xlen(keys.DEFAULT_JOB) == many, "all records are there")
            for number, (_, fields) in enumerate(reversed(admin.xrange(keys.DEFAULT_JOB))):
                result = {keys.TENSOR + b"y": encode_tensor(np.array([many - 1 - number]))}
                admin.xadd(fields[keys.REPLY], replied(fields[keys.URI], result))
        answered.set()

    def source() -> Iterator[Any]:
        for _ in range(many):
            yield ROW
        deadline_s = time.monotonic() + timeout_s
        assert answered.wait(LONG_S)
        wait_until(lambda: time.monotonic() > deadline_s, "the time is over")

    with InputQueue(port=own_redis.port) as queue, in_background(answer):
        answers: list[Any] = list(queue.predict_many(source(), timeout_s))

    assert [answer[0] for answer in answers] == list(range(many))


def test_results_of_an_earlier_call_are_not_taken_for_the_same_uris(own_redis: PrivateRedis) -> None:
    async def run(admin: Any) -> None:
        async with AsyncInputQueue(port=own_redis.port) as queue:
            early = queue.as_completed([("a", {"t": ROW}), ("b", {"t": ROW})])
            first = asyncio.create_task(anext(early))
            await asyncio.to_thread(wait_until, lambda: admin.xlen(keys.DEFAULT_JOB) == 2, "both records are there")
            (_, one), (_, other) = admin.xrange(keys.DEFAULT_JOB)
            admin.delete(keys.DEFAULT_JOB)
            admin.xadd(one[keys.REPLY], replied(one[keys.URI], {}))
            await first
            await early.aclose()

            later = queue.as_completed([(other[keys.URI].decode(), {"t": ROW})])
            second = asyncio.create_task(anext(later))
            await asyncio.to_thread(wait_until, lambda: admin.xlen(keys.DEFAULT_JOB), "the record is there")
            wrong = {keys.ERROR: b'{"code": "C", "message": "of the first call"}'}
            admin.xadd(other[keys.REPLY], replied(other[keys.URI], wrong))
            answer_all(admin, keys.DEFAULT_JOB)

            assert (await second).error is None
            await later.aclose()

    with own_redis.client() as admin:
        asyncio.run(run(admin))
