"""Load of a trial: a lean client in a separate process that keeps a fixed number of records under way.

    tuner ──Begin, Order, Order, ...──► standard input      standard output ──Seen, Seen, ...──► tuner, and its bell is rung

The client sends a few records again and again and takes the answers from a reply stream. One packet a turn carries all commands.
The client takes CPU time from the workers, as on any machine that also runs the clients and Redis.
"""

import sys
import time
from collections.abc import Sequence
from itertools import count, cycle

import msgspec
import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.admission import CHUNK, TAKEN, Admission, Send
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.parent import die_with_parent, leave_signals_to_parent
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.reply import read_replies
from cluster_serving.node.ring.bell import Bell
from cluster_serving.node.tuning.errors import TuningError


class Begin(msgspec.Struct, frozen=True):
    """First message: address of Redis, inputs of a few records in wire format, and the longest time for an answer."""

    redis: RedisSettings
    records: list[list[bytes]]
    patience_s: float


class Order(msgspec.Struct, frozen=True):
    """Order to keep `window` records of a job under way, for a client of the given name.

    Counting begins after `settle` answers. Counting ends after `seconds` with at least `least` answers counted, and after
    `most_s` in any case.
    """

    job: str
    client: str
    window: int
    settle: int
    seconds: float
    least: int
    most_s: float


class Seen(msgspec.Struct, frozen=True):
    """Result of an order: records a second, milliseconds from enqueueing to answer, and the first error.

    Attributes:
        busy: share of a core that the client has used. Near 1, the client could not do more.
        lost: True when the error is a lost connection to Redis.
    """

    rate: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    busy: float = 0.0
    error: str = ""
    lost: bool = False


class Tally:
    """Counter of answers, from a settled lane until enough answers are counted. Pure: seconds may be of any clock."""

    def __init__(self, order: Order, begun_s: float) -> None:
        self._order = order
        self._begun_s = begun_s
        self._answered = 0
        self._counted_s: list[float] = []
        self._line = [(begun_s, 0)]  # (time, answers counted by then)
        self.over = False

    def hear(self, took_s: Sequence[float], now_s: float) -> None:
        """Count answers. `took_s` has the seconds of each answer."""
        if self._answered < self._order.settle:
            self._line = [(now_s, 0)]
        else:
            self._counted_s += took_s
            self._line.append((now_s, len(self._counted_s)))
        self._answered += len(took_s)
        enough = now_s - self._line[0][0] >= self._order.seconds and len(self._counted_s) >= self._order.least
        self.over = bool(self._counted_s) and (enough or now_s - self._begun_s >= self._order.most_s)

    def seen(self, busy: float) -> Seen:
        """Return the result, once `over` is true.

        The rate is the slope of a line fitted to the counts over time. Answers come a batch at a time, so a rate from the first
        answer to the last may count one batch too many.
        """
        times_s, counts = np.array(self._line).T
        rate = float(np.polyfit(times_s - times_s[0], counts, 1)[0])
        p50_ms, p99_ms = (float(1000 * np.quantile(self._counted_s, share)) for share in (0.5, 0.99))
        return Seen(rate, p50_ms, p99_ms, busy)


class Client:
    """Client that sends records and takes answers."""

    def __init__(self, begin: Begin) -> None:
        self._link = Link(begin.redis, begin.redis.timeout_s + BLOCK_S)
        self._patience_s = begin.patience_s
        self._records = cycle(begin.records)
        self._numbers = count()
        self._sent_s: dict[bytes, float] = {}  # uri of a record under way: time of sending

    def obey(self, order: Order) -> Seen:
        """Carry out an order.

        After success no record is under way any more. After an error, records still under way never count.

        Raises:
            TuningError: a record failed, or is not answered.
            ConnectionLost: Redis went away.
        """
        self._sent_s.clear()
        self._admission = Admission(order.job)
        self._stream = ReplyStream(keys.reply_key(order.job, order.client))
        self._link.call("DEL", self._stream.key)  # left by an order that failed
        self._stream.made(self._link.exchange(*self._stream.make()), time.perf_counter())
        busy_s, begun_s = time.process_time(), time.perf_counter()
        tally, heard_s = Tally(order, begun_s), begun_s
        while self._sent_s or not tally.over:
            took_s = self._turn(0 if tally.over else order.window - len(self._sent_s))
            now_s = time.perf_counter()
            if took_s:
                heard_s = now_s
                if not tally.over:
                    tally.hear(took_s, now_s)
            elif now_s - heard_s > self._patience_s:
                raise TuningError(f"no answer for {self._patience_s:g} s")
        busy = (time.process_time() - busy_s) / (time.perf_counter() - begun_s)
        self._link.call("DEL", self._stream.key)
        return tally.seen(busy)

    def close(self) -> None:
        """Close the connection. The next order opens a new connection."""
        self._link.close()

    def _turn(self, room: int) -> list[float]:
        """Send records while there is room, wait for answers unless more can be sent, and return the seconds of each answer."""
        batch = [[keys.URI, b"%d" % next(self._numbers), *next(self._records)] for _ in range(min(room, CHUNK))]
        send, now_s = Send(batch, common=self._stream.reply), time.perf_counter()
        for fields in batch:
            self._sent_s[fields[1]] = now_s
        enqueue = [self._admission.next([send], now_s)] if batch else []
        read = self._stream.read(now_s, BLOCK_S if room <= CHUNK else 0)
        self._link.send(*enqueue, *read)
        try:
            for packet in enqueue:
                self._admission.receive([send], self._link.read_all(packet.replies))
            if send.state is not TAKEN:
                raise TuningError(f"Redis took {len(send.ids)} of {len(batch)} records: {send.error}")
            replies = read_replies(self._stream.receive(self._link.read_all(len(read))))
        except RedisRefused as refusal:
            self._link.raise_for(refusal)
        heard_s = time.perf_counter()
        took_s: list[float] = []
        for reply in replies:
            sent_s = self._sent_s.pop(reply.uri, None)
            if sent_s is None:  # sent for an order that failed
                continue
            if keys.ERROR in reply.packed and (error := reply.result().error) is not None:
                raise TuningError(f"{error[0]}: {error[1]}")
            took_s.append(heard_s - sent_s)
        return took_s


def main() -> None:
    """Carry out orders until standard input ends."""
    die_with_parent()
    leave_signals_to_parent()
    bell = Bell(int(sys.argv[1]))
    lines = sys.stdin.buffer
    client = Client(msgspec.json.decode(lines.readline(), type=Begin))
    for line in lines:
        try:
            seen = client.obey(msgspec.json.decode(line, type=Order))
        except (TuningError, ConnectionLost, RedisRefused) as error:
            client.close()  # answers may still be on their way
            seen = Seen(error=str(error), lost=isinstance(error, ConnectionLost))
        sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
        sys.stdout.buffer.flush()
        bell.ring()


if __name__ == "__main__":
    main()
