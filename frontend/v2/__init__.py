"""The Open Inference Protocol, version 2, over HTTP, with the extensions of Triton that its clients use.

    body -> compression -> request (JSON head, binary data) -> tensors (arrays) -> rows (records)
                                                                                       |
    body <- compression <- response (JSON head, binary data) <- outputs (arrays) <- results

`asked` is what a request wants beside its tensors, `headless` the request that is nothing but data.
A tensor has the batch dimension, a record of the queue is one row: a request of n rows is n records, and their results are
stacked. `metadata` and `statistics` say what the protocol asks about a model.

https://github.com/kserve/open-inference-protocol; the extensions: https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""
