"""Random walks of the client's protocol, without I/O, against Redis as it is in a dozen lines."""

from collections import Counter
from typing import Any

import hiredis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster_serving.client.errors import ConnectionLost, QueueFull, Unavailable
from cluster_serving.client.protocol.admission import Admission, Send, State
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import ReplyStream
from cluster_serving.client.protocol.resp import joined

REFUSALS = ["OOM command not allowed", "LOADING Redis is loading the dataset in memory", "WRONGTYPE of a key"]
ENDS = [State.TAKEN, State.REFUSED, State.LOST]


class AdmissionWalk(RuleBasedStateMachine):
    """Calls of one admission, several in one transaction, on a queue with a limit and on connections that break."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = Admission("job")
        self.sends: list[tuple[Send, list[bytes]]] = []
        self.queue: dict[bytes, bytes] = {}  # id of an entry, and its record
        self.waiting = 0
        self.limit = 3
        self.now_s = 0.0

    def _execute(self, packet: Any) -> list[Any]:
        """Do as Redis does."""
        reader = hiredis.Reader()
        reader.feed(joined([packet])[0])
        commands: list[list[bytes]] = list(iter(reader.gets, False))
        records = [command[-1] for command in commands if command[0] == b"XADD"]
        (planned,) = [int(command[-1]) for command in commands if command[0] == b"EVAL"]
        wanted = len(records) + planned
        surplus = max(0, min(wanted, self.waiting + wanted - self.limit))
        if planned:
            return [[surplus, None]]
        ids = [b"%d-0" % (len(self.queue) + number) for number in range(len(records))]
        taken = len(records) - surplus
        self.queue |= zip(ids[:taken], records[:taken], strict=True)
        self.waiting += taken
        return [b"OK", *[b"QUEUED"] * (len(records) + 1), [*ids, [surplus, None]]]

    def _held(self) -> list[Send]:
        return [send for send, _ in self.sends if send.state is State.HELD]

    def _any_held(self) -> bool:
        return bool(self._held())

    @rule(records=st.integers(1, 4))
    def _call(self, records: int) -> None:
        names = [b"%d.%d" % (len(self.sends), number) for number in range(records)]
        self.sends.append((Send([[b"uri", name] for name in names]), names))

    @precondition(_any_held)
    @rule()
    def _exchange(self) -> None:
        sends = self._held()
        self.admission.receive(sends, self._execute(self.admission.next(sends, self.now_s)))

    @precondition(_any_held)
    @rule(text=st.sampled_from(REFUSALS))
    def _refuse(self, text: str) -> None:
        sends = self._held()
        refusals = [RedisRefused(text)] * self.admission.next(sends, self.now_s).replies
        try:
            self.admission.receive(sends, refusals)
        except RedisRefused:
            for send in sends:
                send.fail(Unavailable(text))

    @precondition(_any_held)
    @rule(executed=st.booleans())
    def _break_connection(self, executed: bool) -> None:
        sends = self._held()
        packet = self.admission.next(sends, self.now_s)
        if executed:
            self._execute(packet)
        for send in sends:
            send.fail(ConnectionLost("broke"))

    @precondition(_any_held)
    @rule()
    def _pause(self) -> None:
        self.now_s += max(send.pause_s(self.now_s, give_up_s=1) for send in self._held())

    @rule()
    def _finish_all(self) -> None:
        self.waiting = 0

    @invariant()
    def _no_record_is_enqueued_twice(self) -> None:
        assert max(Counter(self.queue.values()).values(), default=1) == 1

    @invariant()
    def _a_send_tells_the_truth(self) -> None:
        enqueued = {*self.queue.values()}
        for send, names in self.sends:
            there = [name for name in names if name in enqueued]
            assert there == names[: len(there)], "in order"
            assert [self.queue[entry_id] for entry_id in send.ids] == names[: len(send.ids)]
            assert (send.state is State.TAKEN) == (len(send.ids) == len(names))
            assert send.state is State.LOST or len(there) == len(send.ids)
            if send.state in ENDS and isinstance(send.error, QueueFull | ConnectionLost):
                assert send.error.accepted == len(send.ids)
                assert isinstance(send.error, QueueFull) or send.error.unsent == (send.state is State.REFUSED)


class ReplyStreamWalk(RuleBasedStateMachine):
    """A client that reads its stream, a node that publishes to it, and a Redis that is emptied or fails over."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = ReplyStream("replies")
        self.entries: list[tuple[bytes, list[bytes]]] | None = None
        self.newest = (0, 0)  # id that Redis gave last, also to an entry that has been deleted
        self.published = 0
        self.epoch = 100
        self.read: list[bytes] = []
        self.wanted: list[bytes] = []
        self.now_s = 0.0

    def _execute(self, commands: Any) -> list[Any]:
        """Do as Redis does."""
        return [getattr(self, f"_{command[0].lower()}")(*command[1:]) for command in commands]

    def _xgroup(self, *_: Any) -> Any:
        if self.entries is not None:
            return RedisRefused("BUSYGROUP Consumer Group name already exists")
        self.entries = []
        return b"OK"

    def _pexpire(self, *_: Any) -> int:
        return int(self.entries is not None)

    def _xtrim(self, _key: str, _minid: str, least: bytes) -> int:
        before = self.entries or []
        if self.entries is not None:
            self.entries = [entry for entry in before if order(entry[0]) >= order(least)]
        return len(before) - len(self.entries or [])

    def _xread(self, *arguments: Any) -> Any:
        after: bytes = arguments[-1]
        found = [entry for entry in self.entries or [] if order(entry[0]) > order(after)]
        return [[b"replies", found]] if found else None

    @initialize()
    def _make_sure(self) -> None:
        if self.stream.is_unsure(self.now_s):
            self.stream.made(self._execute(self.stream.make()), self.now_s)
            assert self.entries is not None

    @rule(size=st.sampled_from([1, 1 << 15]))
    def _publish(self, size: int) -> None:
        if self.entries is not None:
            self.published += 1
            name = b"%d" % self.published
            newest_ms, number = self.newest
            self.newest = max((self.epoch, self.published), (newest_ms, number + 1))
            self.entries.append((b"%d-%d" % self.newest, [b"batch", b"{}", name, b"x" * size]))
            self.wanted.append(name)

    @rule(block_s=st.sampled_from([0.0, 1.0]))
    def _receive(self, block_s: float) -> None:
        self._make_sure()
        commands, missing = self.stream.read(self.now_s, block_s), self.entries is None
        entries = self.stream.receive(self._execute(commands))
        self.read += [fields[2] for _, fields in entries if fields[2] not in self.read]  # nobody waits for the others
        if len(commands) > 1:
            assert self.stream.is_unsure(self.now_s) == missing
            assert self.stream.vanished or not missing
            assert len(self.entries or []) == len(entries), "the entries that were read before are deleted"
        elif not entries and block_s:
            assert len(self.stream.read(self.now_s, block_s)) == 3, "an idle read is followed by a renewal"

    @rule(fails_over=st.booleans())
    def _flush(self, fails_over: bool) -> None:
        """A failover breaks the connection, and the clock of the new master may be behind."""
        lost = self.wanted[len(self.read) :]
        self.wanted = self.wanted[: len(self.wanted) - len(lost)]
        self.entries, self.newest = None, (0, 0)
        if fails_over:
            self.epoch -= 10
            self.stream.doubt()

    @precondition(lambda self: self.entries)
    @rule(lag=st.integers(0, 3))
    def _fail_over_to_a_replica(self, lag: int) -> None:
        """The new master has the stream without its last entries, and its clock is behind."""
        kept = (self.entries or [])[: len(self.entries or []) - lag]
        missing = {fields[2] for _, fields in (self.entries or [])[len(kept) :]} - {*self.read}
        self.entries = kept
        if lag:
            self.newest = order(kept[-1][0]) if kept else (0, 0)
        self.wanted = [name for name in self.wanted if name not in missing]
        self.epoch -= 10
        self.stream.doubt()

    @rule(seconds=st.floats(0, 20))
    def _wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def _every_result_is_read_once_and_in_order(self) -> None:
        assert self.read == self.wanted[: len(self.read)]

    def teardown(self) -> None:
        """Read to the end."""
        self._receive(0.0)
        assert self.read == self.wanted


def order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, number = entry_id.partition(b"-")
    return int(milliseconds), int(number)


TestAdmission = AdmissionWalk.TestCase
TestReplyStream = ReplyStreamWalk.TestCase
TestAdmission.settings = TestReplyStream.settings = settings(max_examples=40)
