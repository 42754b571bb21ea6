"""Errors that the frontend answers a request with, and their HTTP statuses.

ClusterServingError             client/errors.py: QueueFull 429, ConnectionLost 503, ResultTimeout 504, others 500
└── RequestError
    ├── BadRequest              400   the body, a header or a parameter is not valid
    ├── Unauthorized            401   no API key, or a wrong one
    ├── Forbidden               403   a page of another site, or Redis does not let the frontend
    ├── UnknownModel            404   no live node serves the model
    ├── UnknownResult           404   no call of this API key has the id, or its time is over
    ├── UnsupportedMediaType    415   a content type that no route reads
    ├── Limited                 429   more requests per second than the token bucket lets through
    ├── TooManyCalls            429   the API key has as many calls that are answered later as it may have
    ├── Overloaded              429   the queue is full, or the wait would be longer than the request may take
    └── NotReady                503   the nodes of the model are starting, or cannot serve now
"""

from cluster_serving.client.errors import ClusterServingError, ErrorCode


class RequestError(ClusterServingError):
    """Error of a request that is not answered with a prediction.

    Attributes:
        retry_after_s: whole seconds until a retry makes sense, at least 1. None: not known.
    """

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BadRequest(RequestError):
    """The body, a header or a parameter is not valid. The message names the part at fault and the expected form."""

    http_status = 400


class Unauthorized(RequestError):
    """No API key, or a wrong one."""

    http_status = 401


class Forbidden(RequestError):
    """The request comes from a page of another site, or Redis does not let the frontend do what it asks."""

    http_status = 403


class UnknownModel(RequestError):
    """No live node serves the model. The message names the served models."""

    http_status = 404


class UnknownResult(RequestError):
    """No call of this API key has the id, or its time is over."""

    http_status = 404


class UnsupportedMediaType(RequestError):
    """The route does not read a body of this content type."""

    http_status = 415


class Limited(RequestError):
    """More requests per second than the token bucket lets through."""

    http_status = 429


class TooManyCalls(RequestError):
    """The API key has as many calls that are answered later as it may have (`laterPerKey`)."""

    http_status = 429


class Overloaded(RequestError):
    """The queue is full, or the wait would be longer than the request may take."""

    http_status = 429


class NotReady(RequestError):
    """The nodes of the model are starting, or cannot serve now."""

    http_status = 503


SEE_LOG = "the log of the frontend says why"
"""End of an error whose cause names addresses, users or keys of Redis. Callers over HTTP need not know them."""

REDIS_AWAY = f"Redis cannot be reached or cannot serve; {SEE_LOG}"
"""Sentence for callers over HTTP about a Redis that is away."""

STATUS_OF_RECORD: dict[str, int] = {
    ErrorCode.INVALID_INPUT: 400,
    ErrorCode.DEADLINE_EXCEEDED: 504,
    ErrorCode.OTHER_VERSION: 503,
    ErrorCode.UNREADABLE: 503,
}
"""HTTP status of a failed record, by error code. All other codes are 500: the fault of the model or the node."""
