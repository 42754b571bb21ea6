"""Load of a trial: a lean client in a separate process that keeps a fixed number of records under way.

    tuner ──Begin, Order, Order, ...──► standard input      standard output ──Seen, Seen, ...──► tuner, and its bell is rung

The client sends a few records again and again. It takes CPU time from the workers, as on any machine that also runs the clients
and Redis.
"""

import select
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import count, islice
from math import inf

import msgspec
import numpy as np

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import BLOCK_S
from cluster_serving.client.redis_settings import RedisSettings
from cluster_serving.client.servers.process.parent import die_with_parent, leave_signals_to_parent
from cluster_serving.node.load.channel import Request
from cluster_serving.node.load.messages import QueueTarget
from cluster_serving.node.load.queue import QueueChannel
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
        self._begin = begin
        self._numbers = count()

    def obey(self, order: Order) -> Seen:
        """Carry out an order.

        After success no record is under way any more. After an error, records still under way never count.

        Raises:
            TuningError: a record failed, or is not answered.
            ConnectionLost: Redis went away.
        """
        begin = self._begin
        sent_s: dict[int, float] = {}  # number of a record under way: time of sending
        with closing(QueueChannel(QueueTarget(begin.redis, order.job, begin.records), order.client)) as channel:
            busy_s, begun_s = time.process_time(), time.perf_counter()
            tally, heard_s = Tally(order, begun_s), begun_s
            while sent_s or not tally.over:
                room = 0 if tally.over else order.window - len(sent_s)
                took_s = self._turn(channel, sent_s, room)
                now_s = time.perf_counter()
                if took_s:
                    heard_s = now_s
                    if not tally.over:
                        tally.hear(took_s, now_s)
                elif now_s - heard_s > begin.patience_s:
                    raise TuningError(f"no answer for {begin.patience_s:g} s")
            return tally.seen((time.process_time() - busy_s) / (time.perf_counter() - begun_s))

    def _turn(self, channel: QueueChannel, sent_s: dict[int, float], room: int) -> list[float]:
        """Send records while there is room, wait for answers unless more can be sent, and return the seconds of each answer."""
        requests = [Request(number, inf) for number in islice(self._numbers, min(room, channel.at_once))]
        sent_s.update(dict.fromkeys((request.number for request in requests), time.perf_counter()))
        refused = channel.send(requests) if requests else []
        if refused:
            raise TuningError(
                f"Redis took {len(requests) - len(refused)} of {len(requests)} records: {refused[0].message}"
            )
        can_wait = room <= len(requests)
        outcomes = channel.receive() if select.select([channel], [], [], BLOCK_S if can_wait else 0)[0] else []
        heard_s = time.perf_counter()
        took_s: list[float] = []
        for number, code, message, _ in outcomes:
            due_s = sent_s.pop(number, None)
            if due_s is None:  # sent for an order that failed
                continue
            if code:
                raise TuningError(f"{code}: {message}")
            took_s.append(heard_s - due_s)
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
            seen = Seen(error=str(error), lost=isinstance(error, ConnectionLost))
        sys.stdout.buffer.write(msgspec.json.encode(seen) + b"\n")
        sys.stdout.buffer.flush()
        bell.ring()


if __name__ == "__main__":
    main()
