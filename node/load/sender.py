"""Sending process: keeps requests under way, or sends them by the clock, and tells what came of them.

In an open loop a request counts from when it was due, not from when it was sent. A server that stalls makes all requests late that
are due meanwhile; a client that waited for the server would not send them (coordinated omission).
"""

import secrets
import select
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from math import inf
from typing import BinaryIO

import msgspec
import numpy as np

from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.servers.process.parent import die_with_parent, leave_signals_to_parent
from cluster_serving.node.load.channel import Channel, Outcome, Request
from cluster_serving.node.load.http import HttpChannel
from cluster_serving.node.load.messages import HttpTarget, Order, Tick
from cluster_serving.node.load.queue import QueueChannel

TIMED_OUT = "ResultTimeout"

_TICK_S = 0.25
_PAUSE_S = 0.02  # of a closed loop after a refusal, so that a full queue is not asked thousands of times a second
_BLOCK = 1024  # times drawn at once


def arrivals(rate: float, kind: str, seed: int, begin_s: float) -> Iterator[float]:
    """Yield the times at which requests are due, without end: at random (`poisson`), or each 1 / rate seconds (`fixed`)."""
    random = np.random.default_rng(seed)
    last_s = begin_s + (random.random() / rate if kind == "fixed" else 0.0)  # several processes are not in step
    while True:
        gaps_s = np.full(_BLOCK, 1 / rate) if kind == "fixed" else random.exponential(1 / rate, _BLOCK)
        times_s = last_s + np.cumsum(gaps_s)
        last_s = float(times_s[-1])
        yield from times_s.tolist()


class Sender:
    """Loop over one channel. `stop` is a descriptor that can be read when the load is to end."""

    def __init__(self, order: Order, channel: Channel, stop: BinaryIO, tell: Callable[[Tick], None]) -> None:
        self._order = order
        self._channel = channel
        self._stop = stop
        self._tell = tell
        self._under_way: dict[int, float] = {}  # number of a request: when it was due, in the order of sending
        self._next = 0
        self._paused_until_s = 0.0
        begin_s = time.monotonic()
        self._arrivals = arrivals(order.rate, order.arrivals, order.seed, begin_s) if order.rate else None
        self._waiting: deque[float] = deque()  # due requests of an open loop that are not sent yet
        self._next_due_s = next(self._arrivals) if self._arrivals else inf
        self._begin_tick(begin_s)

    def run(self) -> None:
        """Send and receive until told to stop.

        Raises:
            ConnectionLost: Redis went away.
            RedisRefused: Redis refuses a command.
        """
        sources: list[Channel | BinaryIO] = [self._channel, self._stop]
        wait_s = 0.0
        while True:
            readable, _, _ = select.select(sources, [], [], wait_s)
            if self._stop in readable:
                return
            if self._channel in readable:
                self._take(self._channel.receive())
            now_s = time.monotonic()
            if now_s >= self._tick.since_s + _TICK_S:
                old = [number for number, due_s in self._under_way.items() if due_s < now_s - self._order.timeout_s]
                for number in old:
                    self._channel.give_up(number)
                message = f"no answer in {self._order.timeout_s:g} s"
                self._take([Outcome(number, TIMED_OUT, message) for number in old])
                self._end_tick(now_s)
            wait_s = self._send(now_s)

    def _send(self, now_s: float) -> float:
        """Send a chunk of the requests that are due, and return the seconds until there is more to do."""
        until_tick_s = max(0.0, self._tick.since_s + _TICK_S - now_s)
        while self._arrivals and self._next_due_s <= now_s:
            self._waiting.append(self._next_due_s)
            self._next_due_s = next(self._arrivals)
        room = self._order.connections - len(self._under_way)
        count = min(room, self._channel.at_once, len(self._waiting) if self._arrivals else room)
        if self._waiting:
            self._tick.late_s = max(self._tick.late_s, now_s - self._waiting[0])
        if count <= 0:
            return min(until_tick_s, max(0.0, self._next_due_s - now_s)) if room > 0 else until_tick_s
        if now_s < self._paused_until_s:
            return min(until_tick_s, self._paused_until_s - now_s)
        requests: list[Request] = []
        for number in range(self._next, self._next + count):
            due_s = self._waiting.popleft() if self._arrivals else now_s
            self._under_way[number] = due_s
            requests.append(Request(number, max(0.0, self._order.life_s - (now_s - due_s))))
        self._next += count
        refused = self._channel.send(requests)
        if refused and not self._arrivals:
            self._paused_until_s = now_s + _PAUSE_S
        self._take(refused)
        return 0.0

    def _take(self, outcomes: list[Outcome]) -> None:
        now_s = time.monotonic()
        for number, code, message, sample in outcomes:
            due_s = self._under_way.pop(number, None)
            if due_s is None:  # given up
                continue
            self._due_s[code].append(due_s)
            self._done_s[code].append(now_s)
            if sample is not None:
                self._tick.samples.append(sample)
            if code and code not in self._tick.messages:
                self._tick.messages[code] = message

    def _begin_tick(self, now_s: float) -> None:
        self._tick = Tick(now_s, now_s)
        self._due_s: defaultdict[str, list[float]] = defaultdict(list)
        self._done_s: defaultdict[str, list[float]] = defaultdict(list)
        self._used_s = time.process_time()

    def _end_tick(self, now_s: float) -> None:
        tick = self._tick
        tick.until_s = now_s
        tick.due_s = {code: np.array(times).tobytes() for code, times in self._due_s.items()}
        tick.done_s = {code: np.array(times).tobytes() for code, times in self._done_s.items()}
        tick.busy = (time.process_time() - self._used_s) / (now_s - tick.since_s)
        tick.under_way, tick.unsent = len(self._under_way), len(self._waiting)
        oldest_s = min((*self._waiting, *self._under_way.values()), default=now_s)
        tick.oldest_s = now_s - oldest_s
        self._tell(tick)
        self._begin_tick(now_s)


def main() -> None:
    """Carry out the order in the first line of standard input, until standard input ends."""
    die_with_parent()
    leave_signals_to_parent()
    out = sys.stdout.buffer

    def tell(tick: Tick) -> None:
        out.write(msgspec.json.encode(tick) + b"\n")
        out.flush()

    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    try:
        target = order.target
        client = f"bench-{secrets.token_hex(8)}"
        channel = HttpChannel(target) if isinstance(target, HttpTarget) else QueueChannel(target, client)
        Sender(order, channel, sys.stdin.buffer, tell).run()
        channel.close()
    except (ConnectionLost, RedisRefused) as error:
        now_s = time.monotonic()
        tell(Tick(now_s, now_s, error=str(error), is_lost=isinstance(error, ConnectionLost)))


if __name__ == "__main__":
    main()
