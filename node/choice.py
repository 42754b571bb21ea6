"""What was measured to serve a model best."""

import msgspec

from cluster_serving.node.models.runtime import Runtime


class Choice(msgspec.Struct, frozen=True):
    """So many `workers` of so many `threads`, batches of at most `batch` records, and what runs the model."""

    workers: int
    threads: int
    batch: int
    runtime: Runtime
