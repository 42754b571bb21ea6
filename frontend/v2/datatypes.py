"""The datatypes of the protocol, and those of numpy that stand for them."""

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
"""The dtype of a tensor by its datatype; numpy has no bfloat16, and a float32 holds each of its values."""

_DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


def datatype_of(dtype: str) -> str:
    """The datatype of an array of this dtype, or of an input that takes it; what is not numbers is BYTES."""
    return _DATATYPES.get(dtype, BYTES)


def shape_of(spec: TensorSpec, *, batched: bool = False) -> list[int]:
    """The shape of an input or output: -1 for a free dimension, and where it is not known one of -1.

    The batch dimension is free too, whatever the model was made for: the queue gathers its own batches; unless records are
    `batched` already.
    """
    if spec.shape is None:
        return [-1]
    dims = spec.shape if batched else (None, *spec.shape[1:])
    return [-1 if dim is None else dim for dim in dims]


def described(spec: TensorSpec) -> str:
    """For people: `FP32 [-1, 4]`."""
    return f"{datatype_of(spec.dtype)} {'[-1, ...]' if spec.shape is None else shape_of(spec)}"
