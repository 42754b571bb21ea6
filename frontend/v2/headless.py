"""Requests without a head: the body is the data of the model's only input.

curl --data-binary @row.f32 -H "Inference-Header-Content-Length: 0" .../v2/models/my_model/infer
"""

import numpy as np

from cluster_serving.client.wire.heartbeat import Heartbeat
from cluster_serving.frontend.http.errors import BadRequest
from cluster_serving.frontend.v2.asked import Asked
from cluster_serving.frontend.v2.datatypes import BYTES, datatype_of, described
from cluster_serving.frontend.v2.request import InputHead
from cluster_serving.frontend.v2.tensors import Tensor, read_tensor

HEADLESS = "0"
"""Header `Inference-Header-Content-Length` of a request without a head."""
ASKED = Asked("", (), all_binary=True, timeout_s=None)
"""Options of a request without a head: all outputs, in binary."""


def read_headless(body: bytes, node: Heartbeat) -> dict[str, Tensor]:
    """Return the tensor in a body: all rows that the bytes make, or one text.

    Raises:
        BadRequest: the model has several inputs, or rows of no fixed size, or the body has no whole rows.
    """
    if len(node.inputs) != 1:
        raise BadRequest(
            f"a body without a head is for a model with one input, and this model has {len(node.inputs) or 'any'}"
        )
    [spec] = node.inputs
    if spec.is_text:
        return {spec.name: Tensor(spec.name, BYTES, np.array([body], object))}
    if spec.shape is None or not spec.row_bytes or not body or len(body) % spec.row_bytes:
        raise BadRequest(
            f"a body without a head has whole rows of a fixed size; this body has {len(body)} bytes, and the model takes "
            f"{described(spec)}"
        )
    shape = spec.batch_shape(len(body) // spec.row_bytes) or ()
    head = InputHead(spec.name, shape, datatype_of(spec.dtype))
    return {spec.name: read_tensor(head, memoryview(body))}
