"""Queues that take the calls of the original's programs, and answer as the original answered.

Records have the original's form on the wire, so that programs with the original's client read the results, and a server of the
original may still answer. A failed record is the text `NaN` and a missing result the text `[]`, where the queues of
`cluster_serving.client` raise an error.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from cluster_serving import client
from cluster_serving.client.api import Api
from cluster_serving.client.wire.original.base64_text import to_base64

__all__ = [
    "API",
    "RESULT_PREFIX",
    "InputQueue",
    "OutputQueue",
    "http_json_to_ndarray",
    "http_response_to_ndarray",
    "perdict",
]

RESULT_PREFIX = "cluster-serving_"

http_json_to_ndarray = client.http_json_to_ndarray
http_response_to_ndarray = client.http_response_to_ndarray
perdict = client.perdict


class API(Api):
    """A job on a Redis server.

    Args:
        old: host, port and name in order.
        settings: settings of every queue, by name.
    """

    def __init__(self, *old: Any, **settings: Any) -> None:
        super().__init__(**settings, **_named("API", ("host", "port", "name"), old))


class InputQueue(client.InputQueue):
    """Puts records on the queue of a job.

    Args:
        old: one URL of a frontend, as in 0.10 and later, or host, port, sync and frontend_url in order, as in 0.9.
        settings: settings of `cluster_serving.client.InputQueue`, by name. `dialect="native"` keeps every dtype and is faster.
    """

    def __init__(self, *old: Any, **settings: Any) -> None:
        is_url = len(old) == 1 and ":" in str(old[0])
        names = ("frontend_url",) if is_url else ("host", "port", "sync", "frontend_url")
        settings.setdefault("dialect", "original")
        super().__init__(**settings, **_named("InputQueue", names, old))

    def enqueue(self, uri: str, **data: Any) -> str:
        """Put one record on the queue. See `cluster_serving.client.InputQueue.enqueue`."""
        with _printed():
            return super().enqueue(uri, **data)

    def predict(self, request_data: Any, timeout: float = 5) -> Any:
        """Send one record and wait for its result.

        Args:
            request_data: a dict of inputs, one value (the input `t`), or JSON text with `instances`.
            timeout: seconds.

        Returns:
            The ndarray of one output, a list of several outputs, or the list of a filter. For a failed record the text `NaN`, with
            `code` and `reason`. The text `[]` if no result came in time.
        """
        try:
            with _printed():
                return super().predict(request_data, timeout)
        except client.RecordFailed as error:
            if self.frontend_url:
                raise
            return client.Failed(error.code, error.reason)
        except client.ResultTimeout:
            if self.frontend_url:
                raise
            return "[]"

    @staticmethod
    def base64_encode_image(img: bytes) -> str:
        """Return the base64 text of an encoded image."""
        return to_base64(img).decode()


class OutputQueue(client.OutputQueue):
    """Takes results of a job off the queue.

    Args:
        old: host and port in order, as in 0.9.
        settings: settings of `cluster_serving.client.OutputQueue`, by name.
    """

    def __init__(self, *old: Any, **settings: Any) -> None:
        super().__init__(**settings, **_named("OutputQueue", ("host", "port"), old))


@contextmanager
def _printed() -> Generator[None]:
    """Print the original's sentence for a record that Redis does not take. The original then dropped the record."""
    try:
        yield
    except client.QueueFull:
        print("Redis queue is full, please wait for inference or delete the unprocessed records.")
        raise
    except client.RedisRefused as error:
        print(error, "Please check if Redis version > 5, if yes, memory may be full, try dequeue or delete.")
        raise


def _named(kind: str, names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return arguments that were given in order, by name."""
    if len(values) > len(names):
        raise TypeError(f"{kind} takes {', '.join(names)} in order, and further settings by name")
    return dict(zip(names, values, strict=False))
