"""Description of a model: the state of its versions, its inputs and outputs."""

from collections.abc import Sequence
from typing import Any

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.frontend.models.models import Served

SIGNATURE = "serving_default"

_DTYPES = {
    "float16": "DT_HALF",
    "float32": "DT_FLOAT",
    "float64": "DT_DOUBLE",
    "bool": "DT_BOOL",
    "str": "DT_STRING",
    **{
        name: f"DT_{name.upper()}"
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}
_STATES = {"starting": "LOADING", "ready": "AVAILABLE", "draining": "UNLOADING"}


def versions(served: Sequence[Served]) -> dict[str, Any]:
    """Return the answer to `GET /v1/models/<model>`."""
    described: list[dict[str, Any]] = []
    for each in served:
        why = each.why_not_ready
        state = _STATES.get(each.job.described.state, "UNKNOWN")
        if why and state == "AVAILABLE":
            state = "UNKNOWN"  # it was available when Redis was seen last
        status = {"error_code": "UNAVAILABLE" if why else "OK", "error_message": why}
        described.append({"version": each.version, "state": state, "status": status})
    return {"model_version_status": described}


def metadata(served: Served) -> dict[str, Any]:
    """Return the answer to `GET /v1/models/<model>/metadata`."""
    signature = {
        "inputs": {spec.name: _tensor(spec) for spec in served.job.inputs},
        "outputs": {spec.name: _tensor(spec) for spec in served.job.outputs},
        "method_name": "tensorflow/serving/predict",
    }
    return {
        "model_spec": {"name": served.name, "signature_name": "", "version": served.version},
        "metadata": {"signature_def": {"signature_def": {SIGNATURE: signature}}},
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    dims = [{"size": str(-1 if dim is None else dim), "name": ""} for dim in spec.shape or ()]
    return {
        "dtype": _DTYPES.get(spec.dtype, "DT_INVALID"),
        "tensor_shape": {"dim": dims, "unknown_rank": spec.shape is None},
        "name": spec.name,
    }
