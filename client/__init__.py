"""Client of Cluster Serving: put records on the queue, and take results off the queue.

Each name is imported at first use, because the servers build on parts of the package that need neither Redis nor numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cluster_serving.client.aio.input_queue import AsyncInputQueue
    from cluster_serving.client.aio.output_queue import AsyncOutputQueue
    from cluster_serving.client.errors import (
        ClusterServingError,
        CodecError,
        ConnectionLost,
        ErrorCode,
        InvalidValue,
        QueueFull,
        RecordFailed,
        ResultTimeout,
        Unavailable,
        Unreadable,
    )
    from cluster_serving.client.http.frontend import perdict
    from cluster_serving.client.http.reply import http_json_to_ndarray, http_response_to_ndarray
    from cluster_serving.client.protocol.redis_refused import RedisRefused
    from cluster_serving.client.protocol.results import Answer, Failed
    from cluster_serving.client.threads.input_queue import InputQueue
    from cluster_serving.client.threads.output_queue import OutputQueue
    from cluster_serving.client.wire.encryption import RecordCipher
    from cluster_serving.client.wire.result import Result
    from cluster_serving.client.wire.values import Value

__all__ = [
    "Answer",
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
    "RedisRefused",
    "Result",
    "ResultTimeout",
    "Unavailable",
    "Unreadable",
    "Value",
    "http_json_to_ndarray",
    "http_response_to_ndarray",
    "perdict",
]

_MODULES = {
    "Answer": "protocol.results",
    "AsyncInputQueue": "aio.input_queue",
    "AsyncOutputQueue": "aio.output_queue",
    "ClusterServingError": "errors",
    "CodecError": "errors",
    "ConnectionLost": "errors",
    "ErrorCode": "errors",
    "Failed": "protocol.results",
    "InputQueue": "threads.input_queue",
    "InvalidValue": "errors",
    "OutputQueue": "threads.output_queue",
    "QueueFull": "errors",
    "RecordCipher": "wire.encryption",
    "RecordFailed": "errors",
    "RedisRefused": "protocol.redis_refused",
    "Result": "wire.result",
    "ResultTimeout": "errors",
    "Unavailable": "errors",
    "Unreadable": "errors",
    "Value": "wire.values",
    "http_json_to_ndarray": "http.reply",
    "http_response_to_ndarray": "http.reply",
    "perdict": "http.frontend",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
