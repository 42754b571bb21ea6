"""Queues of Cluster Serving under the name of Analytics Zoo's client."""

from cluster_serving_compat.beside import refuse_beside_original

refuse_beside_original(__file__)

from cluster_serving_compat.client import (  # noqa: E402 - only where the original is not installed
    API,
    RESULT_PREFIX,
    InputQueue,
    OutputQueue,
    http_json_to_ndarray,
    http_response_to_ndarray,
    perdict,
)

__all__ = [
    "API",
    "RESULT_PREFIX",
    "InputQueue",
    "OutputQueue",
    "http_json_to_ndarray",
    "http_response_to_ndarray",
    "perdict",
]
