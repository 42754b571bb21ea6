"""Every error that the frontend answers a request with, and its HTTP status.

ClusterServingError             client/errors.py: QueueFull 429, ConnectionLost 503, ResultTimeout 504, others 500
└── RequestError
    ├── BadRequest              400   the body, a header or a parameter is not what it should be
    ├── Unauthorized            401   no API key, or a wrong one
    ├── UnknownModel            404   no live node serves it
    ├── UnsupportedMediaType    415   a content type that no route reads
    ├── Limited                 429   more requests a second than the token bucket lets through
    ├── Overloaded              429   the queue is full, or the wait would be longer than the request may take
    └── NotReady                503   its nodes are starting, or cannot serve now
"""

from cluster_serving.client.errors import ClusterServingError, ErrorCode


class RequestError(ClusterServingError):
    """A request that is not answered with a prediction.

    Attributes:
        retry_after_s: when to try again, where that is known: whole seconds, at least 1.
    """

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequest(RequestError):
    """The body, a header or a parameter is not what it should be; the message names it and what was wanted."""

    http_status = 400


class Unauthorized(RequestError):
    """No API key, or a wrong one."""

    http_status = 401


class UnknownModel(RequestError):
    """No live node serves this model; the message names those that are served."""

    http_status = 404


class UnsupportedMediaType(RequestError):
    """A body of a content type that this route does not read."""

    http_status = 415


class Limited(RequestError):
    """More requests a second than the token bucket lets through."""

    http_status = 429


class Overloaded(RequestError):
    """The queue is full, or the wait would be longer than the request may take."""

    http_status = 429


class NotReady(RequestError):
    """The nodes of the model are starting, or cannot serve now."""

    http_status = 503


STATUS_OF_RECORD: dict[str, int] = {
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.DEADLINE_EXCEEDED: 504,
}
"""The HTTP status for a record that failed, by its error code; 500 for the others: the model's or the node's fault."""
