"""Load of a node: its work of the last seconds, a part of the heartbeat."""

import msgspec


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a node over the last 10 s, and the times of its answers over the last minute.

    Attributes:
        records_s: records answered a second, with a result or an error.
        errors_s: records answered with an error a second.
        p50_s: seconds from the enqueueing of a record until its result was published. Half of the records took longer.
        p99_s: the same time, that one of a hundred records exceeded.
        rows: mean number of rows in a run of the model. 0: no run.
        busy: share of the time that each worker worked on batches.
        reader: share of a core that the reader used, of several lanes the busiest.
        writer: the same share, of the writer.
        redis: share of a core that the main thread of Redis used. 0: not known.
        machine: share of all cores of the machine that any process used.
        throttled: share of the time during which the quota of the node's control group held its processes back.
    """

    records_s: float = 0.0
    errors_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    rows: float = 0.0
    busy: tuple[float, ...] = ()
    reader: float = 0.0
    writer: float = 0.0
    redis: float = 0.0
    machine: float = 0.0
    throttled: float = 0.0
