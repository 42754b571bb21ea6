"""Errors of the client, as one tree.

ClusterServingError
├── ConnectionLost      (also ConnectionError)   the connection to Redis broke during a call
│   └── Unavailable                              Redis cannot be reached, or cannot serve: nothing was enqueued
├── RedisRefused        (also redis-py's)        Redis answered with an error: wrong type of key (protocol/redis_refused.py)
├── QueueFull           (also RuntimeError)      the job's stream holds `maxQueueLength` records, or Redis is short of memory
├── ResultTimeout       (also TimeoutError)      no result came in time
├── RecordFailed        (also RuntimeError)      the node answered with an error instead of a result
│   └── Unreadable      (also CodecError)        the client cannot read the result
├── InvalidValue        (also TypeError)         no field of a record can carry the value
└── CodecError          (also ValueError)        malformed bytes from the wire
"""

from enum import StrEnum
from typing import Any


class ErrorCode(StrEnum):
    """Cause of a record's failure: the `code` in the `error` field of a result."""

    INVALID_INPUT = "InvalidInput"
    INFERENCE_FAILED = "InferenceFailed"
    WORKER_DIED = "WorkerDied"
    RESULT_TOO_LARGE = "ResultTooLarge"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    WORKER_HUNG = "WorkerHung"
    DELIVERED_TOO_OFTEN = "DeliveredTooOften"
    OTHER_VERSION = "OtherVersion"
    UNREADABLE = "Unreadable"
    """Found by the client: the node's answer cannot be read."""


class ClusterServingError(Exception):
    """Root of every error that Cluster Serving raises."""

    http_status = 500


class ConnectionLost(ClusterServingError, ConnectionError):
    """The connection to Redis broke during a call. It is unknown whether Redis took a record that was on its way.

    Enqueue the record again under the same uri.

    Attributes:
        unsent: True if Redis certainly took no record of the interrupted command: the error is `Unavailable`.
        accepted: number of the call's records, in order, that Redis certainly took before.
        final: True if another attempt is of no use: a wrong password or certificate.
    """

    http_status = 503
    unsent = False

    def __init__(self, message: str, *, accepted: int = 0, final: bool = False) -> None:
        super().__init__(message)
        self.accepted = accepted
        self.final = final


class Unavailable(ConnectionLost):
    """Redis cannot be reached, or cannot serve (loading, or a read-only replica). Redis certainly took no record."""

    unsent = True


class QueueFull(ClusterServingError, RuntimeError):
    """No record is admitted now: the stream holds `maxQueueLength` records, or Redis is short of memory.

    Attributes:
        accepted: number of the call's records, in order, that Redis took before.
    """

    http_status = 429

    def __init__(self, message: str, accepted: int = 0) -> None:
        super().__init__(message)
        self.accepted = accepted


class ResultTimeout(ClusterServingError, TimeoutError):
    """No result of the record came within the timeout. A node may still compute the result."""

    http_status = 504


class RecordFailed(ClusterServingError, RuntimeError):
    """The node answered the record with an error instead of a result.

    Attributes:
        code: an `ErrorCode`.
        reason: one sentence.
        uri: name of the record, or an empty text.
    """

    http_status = 400

    def __init__(self, code: str, reason: str, uri: str) -> None:
        super().__init__(f"{uri}: {reason} ({code})" if uri else f"{reason} ({code})")
        self.code = code
        self.reason = reason
        self.uri = uri

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts of a pickle. Python's own way gives the class the message alone, and a pool of processes then hangs."""
        return type(self), (self.code, self.reason, self.uri), vars(self)


class InvalidValue(ClusterServingError, TypeError):
    """No field of a record can carry the value. The message names the input and the allowed values."""

    http_status = 400


class CodecError(ClusterServingError, ValueError):
    """Bytes from the wire are malformed. The message names the part and the reason."""

    http_status = 400


class Unreadable(RecordFailed, CodecError):
    """The client cannot read the result of the record: a node of another version has written the result, or it is damaged."""

    http_status = 500
