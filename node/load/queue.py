"""Channel over the queue. Records are encoded once and answers are not decoded, so that the load costs little CPU time."""

import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any

import msgspec

from cluster_serving.client import keys
from cluster_serving.client.errors import CodecError, ConnectionLost, ErrorCode
from cluster_serving.client.protocol.admission import CHUNK, CHUNK_BYTES, Records, admitted, deadline, transaction
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.reply_stream import BLOCK_S, ReplyStream
from cluster_serving.client.protocol.resp import is_out_of_memory
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.reply import Reply, read_replies
from cluster_serving.node.load.channel import Outcome, Request
from cluster_serving.node.load.messages import QueueTarget, Sample

FULL = "QueueFull"


class QueueChannel:
    """Sends records to a job, and takes the answers from a reply stream.

    Args:
        target: job, its Redis, and the records.
        client: name of the reply stream.

    Raises:
        ConnectionLost: from every method: Redis went away.
        RedisRefused: from every method: Redis refuses a command.
    """

    def __init__(self, target: QueueTarget, client: str) -> None:
        self._job = target.job
        self._records = target.records
        longest = max(sum(map(len, fields)) for fields in target.records)
        self.at_once = max(1, min(CHUNK, CHUNK_BYTES // longest))
        self._sending = Link(target.redis)
        self._receiving = Link(target.redis, target.redis.timeout_s + BLOCK_S)
        self._stream = ReplyStream(keys.reply_key(target.job, client))
        self._stream.made(self._receiving.exchange(*self._stream.make()), time.monotonic())
        self._renewed: list[Any] = []
        self._read()

    def fileno(self) -> int:
        """Return the socket that answers come to."""
        return self._receiving.fileno()

    def send(self, requests: Sequence[Request]) -> list[Outcome]:
        """Enqueue records, and return those without room in the queue."""
        together: list[Records] = []
        for life_s, equal in groupby(requests, attrgetter("life_s")):
            numbers = [request.number for request in equal]
            own = [[keys.URI, b"%d" % number, *self._records[number % len(self._records)]] for number in numbers]
            together.append(Records(own, [*self._stream.reply, *deadline(life_s)]))
        try:
            taken, full = admitted(self._job, self._sending.exchange(transaction(self._job, *together)))
        except RedisRefused as refusal:
            if not is_out_of_memory(refusal):
                self._sending.raise_for(refusal)
            return [Outcome(request.number, FULL, str(refusal)) for request in requests]
        return [Outcome(request.number, FULL, str(full)) for request in requests[len(taken) :]]

    def receive(self) -> list[Outcome]:
        """Read the answers of a read of the reply stream, and begin the next read."""
        try:
            replies = read_replies(self._stream.receive([*self._renewed, *self._receiving.read_all(1)]))
        except RedisRefused as refusal:
            self._receiving.raise_for(refusal)
        self._read()
        found: list[Outcome] = []
        for _, group in groupby(replies, attrgetter("batch")):
            batch = list(group)
            middle = len(batch) // 2  # neither the first nor the last record that the batch waited for
            found += [_outcome(reply, is_sampled=at == middle) for at, reply in enumerate(batch)]
        return found

    def give_up(self, number: int) -> None:
        """Do nothing: a late answer is for nobody."""

    def close(self) -> None:
        """Delete the reply stream, so that nodes drop late answers."""
        with suppress(ConnectionLost):
            self._sending.call("DEL", self._stream.key)
        self._sending.close()
        self._receiving.close()

    def _read(self) -> None:
        """Begin a read of the reply stream, which waits for answers.

        The commands that renew the stream are answered first. Otherwise their replies would announce answers that are not there.
        """
        *renewal, read = self._stream.read(time.monotonic(), BLOCK_S)
        self._renewed = self._receiving.exchange(*renewal) if renewal else []
        self._receiving.send(read)


def _outcome(reply: Reply, *, is_sampled: bool) -> Outcome:
    number = int(reply.uri)
    if keys.ERROR in reply.packed and (error := reply.result().error) is not None:
        return Outcome(number, *error)
    if not is_sampled:
        return Outcome(number)
    try:
        receipt = reply.unpack()[1].joined()
        return Outcome(number, sample=Sample(receipt.stages, receipt.batch))
    except (CodecError, msgspec.MsgspecError) as error:
        return Outcome(number, ErrorCode.UNREADABLE, str(error))
