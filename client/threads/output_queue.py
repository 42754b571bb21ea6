"""Output queue: takes results off the queue."""

import threading
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Literal, Self

from cluster_serving.client import keys
from cluster_serving.client.api import Api, seconds
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.redis_refused import RedisRefused
from cluster_serving.client.protocol.results import (
    DELETE,
    READ_AT_ONCE,
    Answer,
    Failed,
    Found,
    deletion,
    escape_glob,
    found_result,
    plain_or_failed,
    result_of,
)
from cluster_serving.client.threads.link import Link
from cluster_serving.client.tracebacks import short_tracebacks
from cluster_serving.client.wire.original.result import get_ndarray_from_b64, get_ndarray_from_record_batch
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import encode_uri

_SCAN_COUNT = 1000


class OutputQueue(Api):
    """Takes results of a job off the queue. Safe for use by several threads.

    Args:
        settings: host, port, name, ...: see `ConnectionSettings`.

    Raises:
        ConnectionLost: from every method that talks to Redis.
    """

    def _begin(self) -> None:
        super()._begin()
        self._prefix = keys.result_prefix(self.name)
        self._link = Link(self.settings)
        self._lock = threading.RLock()  # a signal handler of the thread that holds the lock may use the queue
        self._undelivered: list[Result] = []  # results that an interrupted call had taken

    @short_tracebacks
    def query(self, uri: str, delete: bool = False) -> Answer | Failed | Literal["[]"]:
        """Return the result of one record.

        Args:
            uri: uri of the record.
            delete: True to take the result off the queue.

        Returns:
            The same as `predict`. The text `[]` if there is no result yet. For a failed record a `Failed`: the text `NaN` with
            `code` and `reason`.

        Raises:
            InvalidValue: no record can have the uri.
        """
        key = self._prefix.encode() + encode_uri(uri)
        with self._lock:
            fields = self._link.call("HGETALL", key)
        if delete and fields and not self._take([(key, fields)]):
            return "[]"  # another reader was quicker
        return plain_or_failed(result_of(fields, uri)) if fields else "[]"

    @short_tracebacks
    def query_and_delete(self, uri: str) -> Answer | Failed | Literal["[]"]:
        """Return the result of one record, and take the result off the queue."""
        return self.query(uri, delete=True)

    @short_tracebacks
    def dequeue(self) -> dict[str, Answer | Failed]:
        """Take all available results off the queue. Return the results by uri, each in the form of `query`.

        Results are deleted once they have arrived. If the connection breaks at that moment, or Ctrl-C interrupts the call, results
        may come a second time, and none is lost.
        """
        taken, self._undelivered = self._undelivered, []
        try:
            try:
                for names in self._pages():
                    taken += self._take(self._read(names))
            except ConnectionLost:
                if not taken:
                    raise
                # The results taken so far exist only here, so they are returned. The remaining results are still in Redis.
            return {result.uri: plain_or_failed(result) for result in taken}
        except BaseException:
            self._undelivered += taken
            raise

    @short_tracebacks
    def results(self, timeout: float = 5) -> Generator[Result]:
        """Take results off the queue as they come, for records of every client.

        Each result is taken right before it is given, so the caller may stop the loop at any time. The remaining results stay in
        Redis.

        Args:
            timeout: seconds without a new result after which the iterator ends. 0: the results that are there.

        Yields:
            `Result`s, also of failed records: see `result.error`.

        Raises:
            ValueError: the timeout is no number.
        """
        timeout = seconds("timeout", timeout)
        quiet_since_s = time.monotonic()
        pause_s = 0.005
        while True:
            any_came = False
            while self._undelivered:
                any_came = True
                yield self._undelivered.pop()
            for names in self._pages():
                for start in range(0, len(names), READ_AT_ONCE):
                    for found in self._read(names[start : start + READ_AT_ONCE]):
                        for result in self._take([found]):
                            any_came = True
                            yield result
            if any_came:
                quiet_since_s, pause_s = time.monotonic(), 0.005
            if time.monotonic() - quiet_since_s >= timeout:
                return
            if not any_came:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.1)

    get_ndarray_from_b64 = staticmethod(get_ndarray_from_b64)
    get_ndarray_from_record_batch = staticmethod(get_ndarray_from_record_batch)

    def close(self) -> None:
        """Close the connection. Calls of other threads get `ConnectionLost`. A later call connects again."""
        self._link.shut_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pages(self) -> Iterator[list[bytes]]:
        """Yield the keys of the results in Redis, about 1000 at a time."""
        cursor: bytes | int = 0
        pattern = escape_glob(self._prefix) + "*"
        while True:
            with self._lock:
                cursor, found = self._link.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT, "TYPE", "hash")
            if found:
                yield found
            if int(cursor) == 0:
                return

    def _read(self, names: Sequence[bytes]) -> list[Found]:
        """Return the results with these keys. Results that another reader has taken meanwhile are left out."""
        with self._lock:
            replies = self._link.exchange(*(("HGETALL", name) for name in names))
            for reply in replies:
                if isinstance(reply, RedisRefused):
                    self._link.raise_for(reply)
        return [(name, fields) for name, fields in zip(names, replies, strict=True) if fields]

    def _take(self, found: Sequence[Found]) -> list[Result]:
        """Take results off the queue that were read. Results that another reader has taken meanwhile are left out."""
        results = [found_result(key, self._prefix, fields) for key, fields in found]
        try:
            with self._lock:
                deleted = self._link.run(DELETE, *deletion(found))
        except RedisRefused:
            raise
        except ConnectionLost as error:
            if error.unsent:
                raise
            return results  # nobody knows whether Redis has deleted the results, and twice is better than never
        except BaseException:
            self._undelivered += results
            raise
        return [result for result, is_mine in zip(results, deleted, strict=True) if is_mine]
