"""Every error that a client can raise.

ClusterServingError
├── ConnectionLost      (also ConnectionError)   Redis cannot be reached, cannot serve, or left in the middle of a call
├── RedisRefused        (also redis-py's)        Redis answered a command with an error: a key of another type, no right to it
├── QueueFull           (also RuntimeError)      the job's stream holds `maxQueueLength` records, or Redis is short of memory
├── ResultTimeout       (also TimeoutError)      no result came in time
├── RecordFailed        (also RuntimeError)      the node answered with an error instead of a result
├── InvalidValue        (also TypeError)         a value that no field of a record can carry
└── CodecError          (also ValueError)        bytes from the wire that are not what they should be
"""

from enum import StrEnum

import redis


class ErrorCode(StrEnum):
    """Why a record failed: the `code` of the `error` field of a result."""

    INVALID_INPUT = "InvalidInput"
    INFERENCE_FAILED = "InferenceFailed"
    WORKER_DIED = "WorkerDied"
    RESULT_TOO_LARGE = "ResultTooLarge"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    WORKER_HUNG = "WorkerHung"
    DELIVERED_TOO_OFTEN = "DeliveredTooOften"


class ClusterServingError(Exception):
    """The root of every error raised by Cluster Serving."""

    http_status = 500


class ConnectionLost(ClusterServingError, ConnectionError):
    """Redis cannot be reached, cannot serve (it loads, it is a read-only replica), or left in the middle of a call.

    When it left after a record was sent, whether Redis took the record is unknown: enqueue it again under the same uri.

    Attributes:
        unsent: whether it is certain that Redis took nothing of what this error broke off.
        accepted: how many records of this call Redis took for certain before, in order.
    """

    http_status = 503

    def __init__(self, message: str, *, unsent: bool = False) -> None:
        super().__init__(message)
        self.unsent = unsent
        self.accepted = 0


class RedisRefused(ClusterServingError, redis.ResponseError):
    """Redis answered a command with an error that waiting does not mend; the message is Redis's own."""

    http_status = 503


class QueueFull(ClusterServingError, RuntimeError):
    """Nothing is admitted now: the stream holds `maxQueueLength` records, or Redis is short of memory.

    Attributes:
        accepted: how many records of this call were taken before, in order.
    """

    http_status = 429

    def __init__(self, message: str, accepted: int = 0) -> None:
        super().__init__(message)
        self.accepted = accepted


class ResultTimeout(ClusterServingError, TimeoutError):
    """No result of this record came within the time given; it may still be computed."""

    http_status = 504


class RecordFailed(ClusterServingError, RuntimeError):
    """The node answered this record with an error: `code` is an `ErrorCode`, `reason` a sentence, `uri` the record, if named."""

    http_status = 400

    def __init__(self, code: str, reason: str, uri: str) -> None:
        super().__init__(f"{uri}: {reason} ({code})" if uri else f"{reason} ({code})")
        self.code = code
        self.reason = reason
        self.uri = uri


class InvalidValue(ClusterServingError, TypeError):
    """A value that no field of a record can carry; the message names the input and what it may be instead."""

    http_status = 400


class CodecError(ClusterServingError, ValueError):
    """Bytes from the wire that are not what they should be; the message says which and why."""

    http_status = 400
