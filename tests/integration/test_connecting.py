"""Reader and writer while they connect: a slow name server, TLS or login is no hang."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.node.processing.options import DecodeOptions
from cluster_serving.node.reader.reader import Reader
from cluster_serving.node.reader.spec import ReaderSpec
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.ring.metrics import READER, WRITER
from cluster_serving.node.ring.ring import Ring, State
from cluster_serving.node.ring.slot import Geometry, Outcome, Row
from cluster_serving.node.ring.spec import LaneSpec
from cluster_serving.node.writer.spec import WriterSpec
from cluster_serving.node.writer.writer import Writer
from support.private_redis import PrivateRedis
from support.wait import wait_until

JOB = "connecting"
GEOMETRY = Geometry(slots=1, batch=1, slot_bytes=4096, workers=1)


@pytest.fixture
def ring() -> Iterator[Ring]:
    ring = Ring(GEOMETRY)
    yield ring
    ring.close()


@pytest.fixture
def bells() -> Iterator[list[Bell]]:
    bells = [Bell() for _ in range(3)]
    yield bells
    for bell in bells:
        bell.close()


def lane(ring: Ring, bells: list[Bell], port: int) -> LaneSpec:
    """A lane whose Redis has so much time for each step of the login that a test sees the step."""
    reader_bell, writer_bell, worker_bell = (bell.fileno() for bell in bells)
    settings = RedisSettings("127.0.0.1", port, timeout_s=1)
    return LaneSpec(JOB, "node", settings, GEOMETRY, ring.fd, reader_bell, writer_bell, (worker_bell,))


def reader_of(spec: LaneSpec) -> Callable[[], None]:
    """A reader that ends once it is connected."""
    reader = Reader(ReaderSpec(spec, "consumer", (), 0, DecodeOptions(), 10, 5))
    return lambda: reader.run(reader.stop)


def writer_of(spec: LaneSpec) -> Callable[[], None]:
    """A writer that ends once it has published a slot."""
    writer = Writer(WriterSpec(spec, 0, False, "", max_dead_letters=10, max_dead_letter_bytes=1 << 20))
    writer.stop()
    return writer.run


def finish_a_slot(ring: Ring) -> None:
    """Leave a slot to the writer."""
    ring.move("reader", 0, State.FILLING)
    ring.slots[0].fill(b"", [Row(b"1-0", b"uri", b"", 0, 0)], 1)
    ring.hand_over("reader", 0, 0, 1)
    ring.move("worker", 0, State.RUNNING)
    ring.slots[0].outputs[:1] = b"1"
    ring.slots[0].add([Outcome([0], values=[(0, 1)])], 1, 1)
    ring.move("worker", 0, State.DONE)


@pytest.mark.parametrize(("process", "run_of"), [(READER, reader_of), (WRITER, writer_of)])
def test_a_process_that_connects_is_not_silent(
    process: int,
    run_of: Callable[[LaneSpec], Callable[[], None]],
    ring: Ring,
    bells: list[Bell],
    own_redis: PrivateRedis,
) -> None:
    if process == WRITER:
        finish_a_slot(ring)
    own_redis.stop()
    with socket.create_server(("127.0.0.1", own_redis.port)):  # takes connections, and answers nothing
        thread = threading.Thread(target=run_of(lane(ring, bells, own_redis.port)))
        thread.start()
        wait_until(lambda: ring.silent_s(process) < 0, "it connects, and that does not count as silence")
    own_redis.start()
    thread.join(120)

    assert not thread.is_alive()
    assert ring.silent_s(process) >= 0, "what it does from now on counts"
