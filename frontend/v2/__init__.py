"""Open Inference Protocol, version 2, over HTTP, with the extensions used by Triton's clients.

    body -> compression -> request (JSON head, binary data) -> tensors (arrays) -> rows (records)
                                                                                       |
    body <- compression <- response (JSON head, binary data) <- outputs (arrays) <- results

`asked` holds the options of a request beside its tensors, `headless` reads a request that consists of data only.
A tensor has the batch dimension, and a record of the queue is one row. A request of n rows becomes n records, and their results
are stacked. `metadata` and `statistics` answer the protocol's questions about a model.

https://github.com/kserve/open-inference-protocol
https://github.com/triton-inference-server/server/tree/main/docs/protocol (extensions)
"""
