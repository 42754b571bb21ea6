"""Takes results off the queue."""

import threading
import time
from collections.abc import Generator, Iterator
from typing import Any, Self

from cluster_serving.client import keys
from cluster_serving.client.api import Api
from cluster_serving.client.errors import ConnectionLost
from cluster_serving.client.protocol.results import TAKE, escape_glob, plain_or_failed, result_of, taken_result
from cluster_serving.client.threads.link import Link
from cluster_serving.client.wire.original.result import get_ndarray_from_b64, get_ndarray_from_record_batch
from cluster_serving.client.wire.result import Result

_SCAN_COUNT = 1000


class OutputQueue(Api):
    """Takes results off; safe for use by several threads.

    Raises:
        ConnectionLost: from every method that talks to Redis.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._prefix = keys.result_prefix(self.name)
        self._link = Link(self.settings)
        self._lock = threading.Lock()

    def query(self, uri: str, delete: bool = False) -> Any:
        """The result of one record.

        Args:
            uri: of the record.
            delete: whether to take the result off.

        Returns:
            What `predict` returns; the text `[]` when there is no result yet; for a record that failed a `Failed`, which is the
            text `NaN` with `code` and `reason`.
        """
        key = self._prefix + uri
        with self._lock:
            fields = self._link.run(TAKE, [key], [])[0] if delete else self._link.call("HGETALL", key)
        return plain_or_failed(result_of(fields, uri)) if fields else "[]"

    def query_and_delete(self, uri: str) -> Any:
        """The result of one record, taken off."""
        return self.query(uri, delete=True)

    def dequeue(self) -> dict[str, Any]:
        """Every result that is there, by uri, taken off: what `query` gives for each."""
        taken: dict[str, Any] = {}
        try:
            for result in self._take_all():
                taken[result.uri] = plain_or_failed(result)
        except ConnectionLost:
            if not taken:
                raise
            # What has been taken off is nowhere else any more; the rest is still there.
        return taken

    def results(self, timeout: float = 5) -> Generator[Result]:
        """Take results off as they come, whoever enqueued the records.

        Args:
            timeout: seconds without any new result after which the iterator ends.

        Yields:
            `Result`s, failed ones too: `result.error` tells.
        """
        quiet_since_s = time.monotonic()
        pause_s = 0.005
        while time.monotonic() - quiet_since_s < timeout:
            any_came = False
            for result in self._take_all():
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
        """Close the connection; a later call opens it again."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_all(self) -> Iterator[Result]:
        cursor: bytes | int = 0
        pattern = escape_glob(self._prefix) + "*"
        while True:
            with self._lock:
                cursor, found = self._link.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_COUNT, "TYPE", "hash")
                taken = self._link.run(TAKE, found, []) if found else []
            for key, fields in zip(found, taken, strict=True):
                if fields:
                    yield taken_result(key, self._prefix, fields)
            if int(cursor) == 0:
                return
