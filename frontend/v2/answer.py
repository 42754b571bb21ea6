"""Form of the answer of `infer`."""

from collections.abc import Sequence

import msgspec
from sanic import HTTPResponse

from cluster_serving.client.tensor_spec import TensorSpec
from cluster_serving.client.wire.result import Result
from cluster_serving.frontend.http.compression import deflate
from cluster_serving.frontend.http.responses import JsonResponse
from cluster_serving.frontend.v2.asked import Asked
from cluster_serving.frontend.v2.outputs import joined
from cluster_serving.frontend.v2.response import encode_response

HEAD_BYTES = "Inference-Header-Content-Length"


class Answer(msgspec.Struct, frozen=True, tag="v2"):
    """Form of an answer.

    Attributes:
        name: name of the model.
        version: version of the model.
        asked: wanted outputs and their form.
        outputs: outputs of the model.
        stacked: whether each result is a row.
        batched: whether the first dimension of the outputs is the rows.
    """

    name: str
    version: str
    asked: Asked
    outputs: tuple[TensorSpec, ...]
    stacked: bool
    batched: bool

    def response(self, results: Sequence[Result], accepted: str) -> HTTPResponse:
        """Return 200 and the output tensors, in JSON or binary, compressed as `accepted` allows.

        Raises:
            RecordFailed: a record failed.
            BadRequest: the results do not fit each other, or a wanted output does not exist.
        """
        head = {"model_name": self.name, "model_version": self.version}
        outputs = joined(results, self.stacked, self.outputs)
        body, head_bytes = encode_response(head, outputs, self.asked, self.batched)
        headers = {} if head_bytes is None else {HEAD_BYTES: str(head_bytes)}
        body, encoding = deflate(body, accepted)
        if encoding:
            headers["Content-Encoding"] = encoding
        if head_bytes is not None:
            return HTTPResponse(body, headers=headers, content_type="application/octet-stream")
        response = JsonResponse(body, 200)
        response.headers.update(headers)
        return response
