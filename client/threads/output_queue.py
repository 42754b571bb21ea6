"""Output queue: takes results off the queue."""

import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, Self, Unpack

from cluster_serving.client import keys
from cluster_serving.client.api import Api, ConnectionSettings
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.results import TAKE, Answer, escape_glob, plain_or_failed, result_of, taken_result
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.original.result import get_ndarray_from_b64, get_ndarray_from_record_batch
from cluster_serving.client.wire.result import Result
from cluster_serving.client.wire.values import encode_uri

_SCAN_COUNT = 1000


class OutputQueue(Api):
    """Takes results of a job off the queue. Safe for use by several threads.

    Args:
        settings: host, port, name, ...: see `Api`.

    Raises:
        ConnectionLost: from every method that talks to Redis.
    """

    def __init__(self, **settings: Unpack[ConnectionSettings]) -> None:
        super().__init__(**settings)
        self._prefix = keys.result_prefix(self.name)
        self._link = Link(self.settings)
        self._lock = threading.Lock()
        self._undelivered: list[Result] = []  # results that an interrupted `dequeue` had taken

    def query(self, uri: str, delete: bool = False) -> Answer:
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
            fields = self._link.run(TAKE, [key], [])[0] if delete else self._link.call("HGETALL", key)
        return plain_or_failed(result_of(fields, uri)) if fields else "[]"

    def query_and_delete(self, uri: str) -> Answer:
        """Return the result of one record, and take the result off the queue."""
        return self.query(uri, delete=True)

    def dequeue(self) -> dict[str, Any]:
        """Take all available results off the queue. Return the results by uri, each in the form of `query`.

        An exception from outside, such as Ctrl-C, loses at most the page of results that is on its way from Redis. The next call
        returns the pages that had arrived before. `results` never takes more than one result ahead.
        """
        taken, self._undelivered = self._undelivered, []
        try:
            try:
                for found in self._pages():
                    taken += self._take(found)
            except ConnectionLost:
                if not taken:
                    raise
                # The results taken so far exist only here, so they are returned. The remaining results are still in Redis.
            return {result.uri: plain_or_failed(result) for result in taken}
        except BaseException:
            self._undelivered += taken
            raise

    def results(self, timeout: float = 5) -> Generator[Result]:
        """Take results off the queue as they come, for records of every client.

        Each result is taken right before it is given, so the caller may stop the loop at any time. The remaining results stay in
        Redis.

        Args:
            timeout: seconds without a new result after which the iterator ends.

        Yields:
            `Result`s, also of failed records: see `result.error`.
        """
        quiet_since_s = time.monotonic()
        pause_s = 0.005
        while time.monotonic() - quiet_since_s < timeout:
            any_came = False
            for found in self._pages():
                for key in found:
                    for result in self._take([key]):
                        any_came = True
                        yield result
            if any_came:
                quiet_since_s, pause_s = time.monotonic(), 0.005
            else:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 0.1)

    get_ndarray_from_b64 = staticmethod(get_ndarray_from_b64)
    get_ndarray_from_record_batch = staticmethod(get_ndarray_from_record_batch)

    def close(self) -> None:
        """Close the connection. A later call connects again."""
        self._link.close()

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

    def _take(self, found: list[bytes]) -> list[Result]:
        """Take results off the queue in one step. Results that another reader has taken meanwhile are left out."""
        with self._lock:
            taken = self._link.run(TAKE, found, [])
        return [taken_result(key, self._prefix, fields) for key, fields in zip(found, taken, strict=True) if fields]
