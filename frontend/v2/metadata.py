"""Metadata of the server and its models, in the words of the protocol and of Triton's model configuration."""

from typing import Any

import cluster_serving
from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.frontend.models.models import Served
from cluster_serving.frontend.v2.datatypes import datatype_of, shape_of

_EXTENSIONS = ("binary_tensor_data", "classification", "model_configuration", "statistics")
_PLATFORMS = {
    "onnx": "onnxruntime_onnx",
    "torch": "pytorch_libtorch",
    "tensorflow": "tensorflow_savedmodel",
    "openvino": "openvino",
}
"""Platforms that clients know. All other platforms have the name of the backend."""
_TRITON_BACKENDS = {"onnx": "onnxruntime", "torch": "pytorch"}


def server_metadata() -> dict[str, Any]:
    """Return the answer to `GET /v2`."""
    return {"name": "cluster-serving", "version": cluster_serving.__version__, "extensions": _EXTENSIONS}


def model_metadata(served: Served) -> dict[str, Any]:
    """Return the answer to `GET /v2/models/<model>`, without inputs and outputs that are not known."""
    node = served.job.described
    return {
        "name": served.name,
        "versions": [served.version],
        "platform": _PLATFORMS.get(node.backend, node.backend),
        "inputs": [_tensor(spec) for spec in node.inputs],
        "outputs": [_tensor(spec) for spec in node.outputs],
        "parameters": {"batching": node.batching},
    }


def model_config(served: Served, most_rows: int) -> dict[str, Any]:
    """Return the model configuration of Triton, with the fields that have a meaning here.

    Args:
        served: model to describe.
        most_rows: largest number of rows in one request.
    """
    node = served.job.described
    return {
        "name": served.name,
        "platform": _PLATFORMS.get(node.backend, node.backend),
        "backend": _TRITON_BACKENDS.get(node.backend, node.backend),
        "max_batch_size": 0 if node.already_batched else most_rows,
        "input": [_configured(spec, node.already_batched) for spec in node.inputs],
        "output": [_configured(spec, node.already_batched) for spec in node.outputs],
        "dynamic_batching": {"preferred_batch_size": [node.batch_size]},
        "parameters": {"batching": {"string_value": node.batching}},
    }


def index_entry(served: Served) -> dict[str, str]:
    """Return the entry of a model in the repository index."""
    reason = served.why_not_ready
    return {
        "name": served.name,
        "version": served.version,
        "state": "UNAVAILABLE" if reason else "READY",
        "reason": reason,
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": datatype_of(spec.dtype), "shape": shape_of(spec)}


def _configured(spec: TensorSpec, calls: bool) -> dict[str, Any]:
    """Return an input or output for the configuration, without the batch dimension if the queue gathers batches."""
    datatype = datatype_of(spec.dtype)
    dims = shape_of(spec)
    if spec.shape is not None and spec.batch_axis is not None and not calls:
        del dims[spec.batch_axis]
    return {
        "name": spec.name,
        "data_type": f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}",
        "dims": dims,
    }
