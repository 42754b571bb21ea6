"""Input queue: puts records on the queue, and waits for results if wanted."""

import math
import time
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, count
from typing import Any, Never, Self, TypeVar, Unpack

import numpy as np

from cluster_serving.client import keys
from cluster_serving.client.api import Api, ConnectionSettings, seconds, window_of
from cluster_serving.client.calls_by_name import without_names
from cluster_serving.client.errors import ConnectionLost, RecordFailed, ResultTimeout
from cluster_serving.client.http.frontend import Frontend
from cluster_serving.client.protocol.admission import CHUNK, SENT, Admission, Send, check, chunks
from cluster_serving.client.protocol.durability import Durability, check_durability
from cluster_serving.client.protocol.payload import Payload, check_codec
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.requests import (
    Dialect,
    Fields,
    Request,
    as_inputs,
    check_dialect,
    native_fields,
    request_fields,
)
from cluster_serving.client.protocol.resp import abandoned
from cluster_serving.client.protocol.results import (
    DELETE,
    PAUSE_S,
    WINDOW,
    Answer,
    answer_to_request,
    begun_in_time,
    deletion,
    plain,
    result_of,
)
from cluster_serving.client.threads.admission import ThreadAdmission
from cluster_serving.client.threads.link import Link
from cluster_serving.client.threads.output_queue import OutputQueue
from cluster_serving.client.threads.replies import Replies
from cluster_serving.client.tracebacks import short_tracebacks
from cluster_serving.client.wire.compression import Codec
from cluster_serving.client.wire.original.encode import encode_record as encode_original
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import Value

T = TypeVar("T")

_SLOW_S = 0.005
_Pending = tuple[str, float, list[bytes]]
"""Record under way: uri, deadline on the monotonic clock, and the ids of all entries of its chunk."""


class InputQueue(Api):
    """Puts records on the queue of a job. Safe for use by several threads.

    Args:
        frontend_url: URL of an HTTP frontend, `http://…` or `https://…`. With the URL, `predict` goes over HTTP.
        api_key: API key, where that frontend wants one. White space around it, as of a file's last line, is left out.
        dialect: `native`, or `original` to write like the original's clients (for servers of the original).
        patience_s: seconds to retry while the queue is full, or Redis cannot be reached or cannot serve. Then `QueueFull` or
            `ConnectionLost` is raised. A record that Redis may have taken is not sent again. Connecting may take 2 s in any case.
        deadline_s: seconds after enqueueing. A record that no node has begun by then is answered `DeadlineExceeded`.
            Default: no deadline. `predict` and `predict_many` use their timeouts instead.
        compress: `lz4` or `zstd` to send tensors in fewer bytes: in the dtype that the model takes, whole numbers from 0 to 255 as
            uint8, and compressed where a sample says that it takes less time. The model sees the same values. Default: tensors are
            sent as they are.
        durability: `majority` to let `enqueue` and `enqueue_many` return once most Redis servers have the records, so that the loss
            of one loses none. Needs Sentinels. Default: Redis copies the records to its replicas afterwards.
        settings: host, port, name, ...: see `ConnectionSettings`.

    Raises:
        ConnectionLost: from every method that talks to Redis.
        RedisRefused: from every method that talks to Redis, if Redis answers with an error.
    """

    def __init__(
        self,
        frontend_url: str | None = None,
        *more: Never,
        api_key: str | None = None,
        dialect: Dialect = "native",
        patience_s: float = 10.0,
        deadline_s: float | None = None,
        compress: Codec | None = None,
        durability: Durability | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        if more:
            raise without_names("InputQueue", frontend_url, *more)
        self._dialect: Dialect = check_dialect(dialect)
        self._life_s = math.inf if deadline_s is None else seconds("deadline_s", deadline_s)
        self._patience_s = seconds("patience_s", patience_s)
        self._codec: Codec | None = check_codec(compress, self._dialect)
        self._durability: Durability | None = durability
        self._arguments = settings
        self.frontend_url = frontend_url
        self.input_threshold = 0.6  # programs of the original read both attributes. `maxQueueLength` has their task now
        self.interval_if_error = 1
        super().__init__(**settings)
        self._frontend = Frontend.greeted(frontend_url, (api_key or "").strip()) if frontend_url else None

    def __repr__(self) -> str:
        described = super().__repr__()
        return described if self._frontend is None else f"{described[:-1]}, frontend={self._frontend.describe()!r})"

    def _begin(self) -> None:
        super()._begin()
        self._admission = Admission(self.name, check_durability(self._durability, self.settings))
        self._sender = ThreadAdmission(Link(self.settings), self._admission, self._patience_s)
        self._replies = Replies(self.settings, self._admission, self._client_id, self._patience_s)
        self._completing: set[Replies] = set()
        self._payload = Payload(self.name, self._codec) if self._codec else None
        self._numbers = count()

    @cached_property
    def output_queue(self) -> OutputQueue:
        """Output queue of the same job."""
        return OutputQueue(**self._arguments)

    @short_tracebacks
    def enqueue(self, uri: str, **data: Value) -> str:
        """Put one record on the queue.

        Args:
            uri: the record's name. The result is found under the same name.
            data: value of each model input. `client/wire/values.py` lists the kinds of values.

        Returns:
            The id of the stream entry.

        Raises:
            InvalidValue: a value cannot be sent.
            QueueFull: there was no room for `patience_s`. Nothing was enqueued.
            ConnectionLost: with `durability`, also if too few replicas had the record in time. Redis has it all the same.
        """
        return self._sender.put(self._request(uri, data), self._life_s).decode()

    @short_tracebacks
    def enqueue_many(self, records: Iterable[tuple[str, Mapping[str, Value]]]) -> int:
        """Put records on the queue, 64 at a time.

        Args:
            records: pairs of uri and inputs, read as needed.

        Returns:
            The number of records.

        Raises:
            InvalidValue: a value cannot be sent. The chunks before the record have been enqueued.
            QueueFull: there was no room for `patience_s`. `accepted` is the number of records that were enqueued, in order.
            ConnectionLost: `accepted` is as for `QueueFull`. Unless `unsent` is true, more records may have been enqueued.
        """
        requests = (self._request(uri, data) for uri, data in records)
        return sum(map(len, self._sender.put_all(requests, self._life_s)))

    @short_tracebacks
    def enqueue_tensor(self, uri: str, data: Any) -> str:
        """Put one ndarray, or a list of ndarrays as inputs t0, t1, ..., on the queue. `enqueue` does the same and more."""
        arrays = data if isinstance(data, list) else [data]
        if not arrays or not all(isinstance(array, np.ndarray) for array in arrays):
            raise TypeError("Your input is invalid, only List of ndarray and ndarray are allowed.")
        names = ["t"] if len(arrays) == 1 else [f"t{index}" for index in range(len(arrays))]
        return self.enqueue(uri, **dict(zip(names, arrays, strict=True)))

    @short_tracebacks
    def data_to_b64(self, **data: Value) -> str:
        """Return the inputs in the original dialect: base64 of an Arrow stream."""
        return encode_original(data)

    @short_tracebacks
    def predict(self, request_data: Request, timeout: float = 5) -> Answer:
        """Send one record and wait for its result.

        Args:
            request_data: a dict of inputs, one value (the input `t`), or JSON text with `instances`. Only the first instance
                counts.
            timeout: seconds of real time.

        Returns:
            The ndarray of one output, a list of several outputs, or the list of a filter.

        Raises:
            ResultTimeout: no result came in time, or none can come: no node has ever served the job, or Redis has lost the record.
            RecordFailed: the node answered with an error.
            InvalidValue: a value cannot be sent.
            QueueFull: there was no room.
            ValueError: timeout or window is no number.
        """
        timeout = seconds("timeout", timeout)
        if self._frontend is not None:
            return self._frontend.predict(request_data, timeout)
        begun_s, closings = time.monotonic(), self._sender.closings
        deadline_s = begun_s + timeout
        if self._dialect == "original":
            return self._predict_by_polling(uuid.uuid4().hex, as_inputs(request_data), deadline_s)
        uri = self._next_uri()
        fields = self._packed(native_fields(uri, as_inputs(request_data)), timeout)
        check(fields)
        send = Send([fields], deadline_s, self._replies.reply, begun_s=begun_s)
        try:
            self._replies.expect([uri])
            result = self._replies.ask(uri, send)
            if result is None:
                self._sender.complete(send, self._replies, closings)
                result = self._replies.wait(uri, deadline_s, send.ids)
        finally:
            self._replies.forget(uri)
        result.uri = ""  # the caller has never seen the generated name
        return plain(begun_in_time(result))

    @short_tracebacks
    def predict_many(
        self, requests: Iterable[Request], timeout: float = 60, window: int = WINDOW
    ) -> Generator[Answer | RecordFailed]:
        """Send records and yield the results in the same order, with many records under way at once.

        Records that a full queue refused are sent again together with the next records, or when the next result is asked for.

        The caller may pause between two results, and the source between two requests: Redis keeps the results under way for ten
        minutes, or for `timeout` if that is longer, but for at most six hours.

        Args:
            requests: requests as for `predict`, read as needed.
            timeout: seconds that a record may take after it is sent.
            window: number of records under way at once.

        Yields:
            The same as `predict`. For a failed record the `RecordFailed` itself, so that the remaining records go on.

        Raises:
            ResultTimeout: no result came in time, or no node has ever served the job.
            InvalidValue: a value cannot be sent.
            QueueFull: there was no room.
            ValueError: timeout or window is no number.
        """
        timeout, window = seconds("timeout", timeout), window_of(window)
        pending: deque[_Pending] = deque()
        received = count()
        chunk_size = max(1, min(CHUNK, window // 2))
        sent: deque[tuple[Send, list[bytes]]] = deque()
        try:
            for chunk, in_a_hurry in self._chunks(requests, chunk_size):
                self._send_chunk(chunk, timeout, pending, sent)
                if in_a_hurry or window < 2:  # else the next chunk is sent before Redis has answered
                    self._complete(sent, 0)
                if in_a_hurry:
                    self._replies.look()
                while pending and (len(pending) > window - chunk_size or self._replies.has(pending[0][0])):
                    yield self._next_answer(pending, next(received))
            self._complete(sent, 0)
            while pending:
                yield self._next_answer(pending, next(received))
        finally:
            for uri, _, _ in pending:
                self._replies.forget(uri)

    @short_tracebacks
    def as_completed(
        self, records: Iterable[tuple[str, Mapping[str, Value]]], timeout: float = 60, window: int = WINDOW
    ) -> Generator[Result]:
        """Send records and yield the results as they come.

        The caller and the source may pause, as in `predict_many`.

        Args:
            records: pairs of uri and inputs, each uri once.
            timeout: seconds to wait for the next result.
            window: number of records under way at once.

        Yields:
            `Result`s, also of failed records: see `result.error`.

        Raises:
            ResultTimeout: no result came for `timeout` seconds, or no node has ever served the job.
            InvalidValue: a value cannot be sent, or two records with the same uri are under way.
            QueueFull: there was no room.
            ValueError: timeout or window is no number.
        """
        timeout, window = seconds("timeout", timeout), window_of(window)
        client = f"{self._client_id}-{next(self._numbers)}"
        replies = Replies(self.settings, self._admission, client, self._patience_s)
        under_way: dict[str, bytes] = {}
        chunk_size = max(1, min(CHUNK, window // 2))
        self._completing.add(replies)
        try:
            for chunk, in_a_hurry in self._chunks(records, chunk_size):
                self._go_on(replies)
                uris = [uri for uri, _ in chunk]
                replies.expect(uris, max(timeout, PAUSE_S))
                requests = (self._packed(native_fields(uri, data), timeout) for uri, data in chunk)
                entries = chain.from_iterable(self._sender.put_all(requests, self._life_s, replies))
                under_way.update(zip(uris, entries, strict=True))
                if in_a_hurry:
                    replies.look()
                while len(under_way) > max(0, window - chunk_size) or (in_a_hurry and any(map(replies.has, under_way))):
                    yield from self._arrived(replies, timeout, under_way)
            while under_way:
                yield from self._arrived(replies, timeout, under_way)
        finally:
            self._completing.discard(replies)
            replies.close()

    def close(self) -> None:
        """Close the connections. Calls of other threads get `ConnectionLost`. A later call connects again."""
        completing, self._completing = self._completing, set()
        self._sender.close()  # first: a call that retries does not connect again
        for replies in self._replies, *completing:
            replies.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arrived(self, replies: Replies, timeout: float, under_way: dict[str, bytes]) -> Iterator[Result]:
        """Yield the results that have come, at least one, and take their records from those under way."""
        self._go_on(replies)
        for result in replies.arrived(time.monotonic() + timeout, under_way.values()):
            del under_way[result.uri]
            yield result

    def _go_on(self, replies: Replies) -> None:
        """Raise `ConnectionLost` if `close` has ended the call of `as_completed` that reads the replies, or a fork."""
        if replies not in self._completing:
            raise abandoned()

    def _request(self, uri: str, data: Mapping[str, Value]) -> Fields:
        return self._packed(request_fields(self._dialect, uri, data), self._life_s)

    def _packed(self, fields: Fields, within_s: float) -> Fields:
        """Return the fields of a record as they are sent. Ask for the nodes of the job, if that is due."""
        payload = self._payload
        if payload is None:
            return fields
        now_s = time.monotonic()
        if payload.is_due(now_s):
            try:
                self._sender.answer(payload.questions(now_s), within_s)
            except ConnectionLost:
                pass  # nothing is known, and the sending of the record tells the reason
            except RedisRefused as refusal:
                payload.refused(refusal)
        return payload.packed(fields)

    def _next_uri(self) -> str:
        return f"{self._uris}-{next(self._numbers)}"

    def _chunks(self, requests: Iterable[T], size: int) -> Iterator[tuple[list[T], bool]]:
        """Yield chunks of `size` requests or records, each with a flag: True if the source is slow.

        A slow source gets shorter chunks: the requests that came in 5 ms.
        """
        chunk: list[T] = []
        begun_s = time.monotonic()
        for request in requests:
            chunk.append(request)
            slow = time.monotonic() - begun_s > _SLOW_S
            if slow or len(chunk) == size:
                yield chunk, slow
                chunk, begun_s = [], time.monotonic()
        if chunk:
            yield chunk, False

    def _send_chunk(
        self,
        requests: Sequence[Request],
        timeout: float,
        pending: deque[_Pending],
        sent: deque[tuple[Send, list[bytes]]],
    ) -> None:
        uris = [self._next_uri() for _ in requests]
        deadline_s = time.monotonic() + timeout
        ids: list[bytes] = []
        pending += [(uri, deadline_s, ids) for uri in uris]
        self._replies.expect(uris, max(timeout, PAUSE_S))
        records = zip(uris, requests, strict=True)
        for part in chunks(self._packed(native_fields(uri, as_inputs(request)), timeout) for uri, request in records):
            # The next records are encoded while Redis takes the sent records. With waiting, a record cost a tenth more of every
            # core.
            send = self._sender.send(part, timeout, self._replies)
            sent.append((send, ids))
            self._complete(sent, 1 if send.state is SENT else 0)

    def _complete(self, sent: deque[tuple[Send, list[bytes]]], but: int) -> None:
        """Make sure that all sent records are enqueued, except for the last `but` parts."""
        while len(sent) > but:
            send, ids = sent.popleft()
            self._sender.complete(send, self._replies)
            ids += send.ids

    def _next_answer(self, pending: deque[_Pending], number: int) -> Answer | RecordFailed:
        uri, deadline_s, ids = pending[0]
        result = self._replies.wait(uri, deadline_s, ids)
        pending.popleft()
        return answer_to_request(result, number)

    def _predict_by_polling(self, uri: str, data: Mapping[str, Value], deadline_s: float) -> Answer:
        """Poll for the result hash like the original, because the original's servers know no reply stream."""
        closings = self._sender.closings
        self._sender.put(request_fields(self._dialect, uri, data), deadline_s - time.monotonic())
        key, pause_s = (keys.result_prefix(self.name) + uri).encode(), 0.001
        while time.monotonic() < deadline_s:
            if self._sender.closings != closings:
                raise abandoned()
            fields = self._sender.call("HGETALL", key)
            if fields:
                with suppress(ConnectionLost):  # the result is here, and in Redis it expires
                    self._sender.run(DELETE, *deletion([(key, fields)]))
                return plain(result_of(fields, ""))
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)
        where = self.settings.describe()
        raise ResultTimeout(f"no result of {uri!r} in time; is a server of job {self.name} running on {where}?")
