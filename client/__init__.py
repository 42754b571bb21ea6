"""Put records on the queue and take results off it."""

from cluster_serving.client.aio_input_queue import AsyncInputQueue
from cluster_serving.client.aio_output_queue import AsyncOutputQueue
from cluster_serving.client.commands import Failed
from cluster_serving.client.encryption import RecordCipher
from cluster_serving.client.errors import (
    ClusterServingError,
    CodecError,
    ConnectionLost,
    ErrorCode,
    InvalidValue,
    QueueFull,
    RecordFailed,
    ResultTimeout,
)
from cluster_serving.client.frontend import perdict
from cluster_serving.client.http_reply import http_json_to_ndarray, http_response_to_ndarray
from cluster_serving.client.input_queue import InputQueue
from cluster_serving.client.output_queue import OutputQueue
from cluster_serving.client.wire import Result

__all__ = [
    "AsyncInputQueue",
    "AsyncOutputQueue",
    "ClusterServingError",
    "CodecError",
    "ConnectionLost",
    "ErrorCode",
    "Failed",
    "InputQueue",
    "InvalidValue",
    "OutputQueue",
    "QueueFull",
    "RecordCipher",
    "RecordFailed",
    "Result",
    "ResultTimeout",
    "http_json_to_ndarray",
    "http_response_to_ndarray",
    "perdict",
]
