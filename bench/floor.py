"""The floor: the least that moves a record's bytes to a server and back through the same Redis.

Client: pipelined XADD, blocking XREAD of a reply stream. Server: XREADGROUP, `finish.lua` with canned results. The bytes are
those of the real thing; there is no codec, no ring, no worker and no model. Run as a program it is the server.
"""

import sys
import time
from itertools import count

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.protocol.reply_stream import ReplyStream
from cluster_serving.client.protocol.resp import Argument
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.client.wire.reply import pack
from cluster_serving.client.wire.tensors import encode_tensor
from cluster_serving.client.wire.values import encode_record
from cluster_serving.node.writer.address import FINISH

JOB = "bench_floor"
BATCH = 64
_BATCH_RECEIPT = BatchReceipt(
    node="some-host-0a1b2c",
    model="sha256:0123456789abcdef",
    ttl_ms=3_600_000,
    worker=0,
    batch=BATCH,
    filled_ms=1700000000000.123,
    wait_ms=0.123,
    run_ms=0.123,
    publish_ms=0.123,
).encode()


class Client:
    """Sends records and reads replies, as bare as Python can."""

    def __init__(self, port: int) -> None:
        settings = RedisSettings(port=port)
        self._sending, self._receiving = Link(settings), Link(settings, 8.0)
        self._stream = ReplyStream(keys.reply_key(JOB, f"{time.time_ns():016x}"))
        self._stream.made(self._receiving.exchange(*self._stream.make()), time.perf_counter())
        self._numbers = count()
        self._row = encode_record("x", {"x": np.ones(128, np.float32)})[2:]

    def send(self, rows: int) -> None:
        """Enqueue this many records in one write."""
        self._sending.send(*[self._command() for _ in range(rows)])
        for _ in range(rows):
            self._sending.read()

    def receive(self) -> int:
        """Wait for replies; how many came."""
        replies = self._receiving.exchange(*self._stream.read(time.perf_counter(), 4.0))
        return sum(len(fields) // 2 - 1 for _, fields in self._stream.receive(replies))

    def close(self) -> None:
        """Delete the reply stream."""
        self._receiving.call("DEL", self._stream.key)
        self._receiving.close()
        self._sending.close()

    def _command(self) -> list[Argument]:
        uri = f"0123456789abcdef-{next(self._numbers)}"
        return ["XADD", JOB, "*", keys.URI, uri, *self._row, *self._stream.reply]


def throughput(port: int, records: int, window: int) -> None:
    """Move this many records with at most `window` under way."""
    client = Client(port)
    sent = received = 0
    while received < records:
        while sent < records and sent - received <= window - BATCH:
            client.send(BATCH)
            sent += BATCH
        received += client.receive()
    client.close()


def latencies_s(port: int, calls: int) -> list[float]:
    """Seconds of each of so many calls, one at a time."""
    client = Client(port)
    found: list[float] = []
    for _ in range(calls):
        begun_s = time.perf_counter()
        client.send(1)
        client.receive()
        found.append(time.perf_counter() - begun_s)
    client.close()
    return found


def serve(port: int) -> None:
    """Answer every record with a canned result, until killed."""
    link = Link(RedisSettings(port=port), 8.0)
    answer = pack(b"1700000000000-0", 1700000000000.123, 1, [b"tensor:y", encode_tensor(np.ones(10, np.float32))])
    names = [JOB.encode(), keys.dead_key(JOB).encode()]
    link.call("XGROUP", "CREATE", JOB, keys.GROUP, "0", "MKSTREAM")
    print("ready", flush=True)
    while True:
        link.send(("XREADGROUP", "GROUP", keys.GROUP, "floor", "COUNT", BATCH, "BLOCK", 4000, "STREAMS", JOB, ">"))
        streams: dict[bytes, bytes] = {}
        arguments: list[bytes] = []
        for _, entries in link.read() or ():
            for entry_id, fields in entries:
                number = streams.setdefault(fields[5], b"%d" % (len(streams) + 1))
                arguments += (entry_id, number, fields[1], answer)
        if streams:
            told = [keys.GROUP.encode(), b"0", b"0", b"0", _BATCH_RECEIPT, b"%d" % len(streams), b"0"]
            link.run(FINISH, [*names, *streams], [*told, *arguments])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
