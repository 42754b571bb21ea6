"""Load of a node: its work of the last seconds, a part of the heartbeat."""

from collections.abc import Mapping

import msgspec

STAGES = ("stream", "fill", "wait", "decode", "model", "store", "publish", "write")
"""Stages of a record in their order: in the stream, until its batch is closed, until a worker begins, decoding, the model, storing
of outputs, until the writer begins, until Redis has the result. Receipts have the time in the worker as one stage, `run`."""


class ProcessLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a process over the last 10 s. The rest of the time it waits for its predecessor: it is idle.

    Attributes:
        name: name in the log, such as `worker-0`.
        pid: process id. 0: the process is being replaced.
        cores: cores that it may run on, such as `0-3,8`.
        cpu: cores that it used. Several threads may use more than 1.
        busy: share of the time in which it worked.
        blocked: share of the time in which it had work and waited for its successor (back-pressure): a reader for a worker or a
            slot, a writer for Redis.
    """

    name: str
    pid: int = 0
    cores: str = ""
    cpu: float = 0.0
    busy: float = 0.0
    blocked: float = 0.0


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """Work of a node over the last 10 s, and the times of its answers over the last minute.

    Attributes:
        records_s: records answered a second, with a result or an error.
        errors_s: records answered with an error a second.
        p50_s: seconds from the enqueueing of a record until its result was published. Half of the records took longer.
        p99_s: the same time, that one of a hundred records exceeded.
        rows: mean number of rows in a run of the model. 0: no run.
        record_bytes: mean bytes of a record on its way from Redis. 0: no record was read.
        busy: share of the time that each worker worked on batches.
        reader: share of a core that the reader used, of several lanes the busiest.
        writer: the same share, of the writer.
        redis: share of a core that the main thread of Redis used. 0: not known.
        machine: share of all cores of the machine that any process used.
        throttled: share of the time during which the quota of the node's control group held its processes back.
        starved: share of the time during which a process of the machine waited for memory.
        empty: share of the time during which the node held no record.
        burst: mean number of records from one time that the node held none to the next. 0: the node always held records.
        stages: mean seconds of a record in each stage of `STAGES`, of the records published in the last 10 s. Empty: none.
        processes: work of each process: readers, writers and workers.
    """

    records_s: float = 0.0
    errors_s: float = 0.0
    p50_s: float = 0.0
    p99_s: float = 0.0
    rows: float = 0.0
    record_bytes: float = 0.0
    busy: tuple[float, ...] = ()
    reader: float = 0.0
    writer: float = 0.0
    redis: float = 0.0
    machine: float = 0.0
    throttled: float = 0.0
    starved: float = 0.0
    empty: float = 0.0
    burst: float = 0.0
    stages: Mapping[str, float] = {}
    processes: tuple[ProcessLoad, ...] = ()
