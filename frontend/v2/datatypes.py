"""Datatypes of the protocol, and the numpy dtypes that stand for the datatypes."""

from cluster_serving.client.tensor_spec import TensorSpec

BYTES = "BYTES"
BF16 = "BF16"

DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    BF16: "float32",
    "FP32": "float32",
    "FP64": "float64",
    BYTES: "str",
}
"""Dtype of a tensor by its datatype. Numpy has no bfloat16, and float32 holds every bfloat16 value."""

_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


def datatype_of(dtype: str) -> str:
    """Return the datatype of an array, or of a model's input, by dtype. A dtype without a datatype of its own is BYTES."""
    return _DATATYPES.get(dtype, BYTES)


def shape_of(spec: TensorSpec) -> list[int]:
    """Return the shape of an input or output, with -1 for a free dimension. An unknown shape is [-1].

    The batch dimension is free too, regardless of the model's own batch size, because the queue gathers its own batches.
    """
    if spec.shape is None:
        return [-1]
    return [-1 if dim is None or at == spec.batch_axis else dim for at, dim in enumerate(spec.shape)]


def described(spec: TensorSpec) -> str:
    """Return datatype and shape for people to read: `FP32 [-1, 4]`."""
    return f"{datatype_of(spec.dtype)} {'[-1, ...]' if spec.shape is None else shape_of(spec)}"
