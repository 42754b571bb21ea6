"""The five stages of a record as spans of OpenTelemetry, below the span of the record's caller.

    the caller's span
    ├── stream    from the XADD until the reader had the record
    ├── fill      until the batch was closed: the record's values are decoded into the batch
    ├── wait      until a worker began with the batch
    ├── run       in the worker, with decoding of images and the user's processing
    └── publish   until Redis had the result

A record has spans if its traceparent says that the caller has sampled the trace. The sampler of `OTEL_TRACES_SAMPLER` may choose
fewer. All times are on the clock of Redis.
"""

# pyright: reportMissingImports=false
# (the packages are an extra, and the checkers pass without them too)
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from cluster_serving import __version__
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.node.ring.slot import Row
from cluster_serving.node.ring.traceparent import parsed

STAGES: Final = ("stream", "fill", "wait", "run", "publish")


class Published(NamedTuple):
    """Record whose result is published, with what its spans tell."""

    row: Row
    error: str
    receipt: BatchReceipt
    clock_offset_ms: float
    published_ms: float

    def instants_ns(self) -> list[int]:
        """Return the six Unix times in ns between which the stages lie, in order, and none after the last.

        Clocks that are set, and clients that choose ids of entries, may tell others.
        """
        batch, read_ms = self.receipt, self.row.read_us / 1000 + self.clock_offset_ms
        started_ms = batch.filled_ms + batch.wait_ms
        enqueued_ms = float(self.row.id.partition(b"-")[0])
        instants = [0]
        for at_ms in (enqueued_ms, read_ms, batch.filled_ms, started_ms, started_ms + batch.run_ms, self.published_ms):
            instants.append(max(instants[-1], round(min(at_ms, self.published_ms) * 1e6)))
        return instants[1:]


class SpanMaker:
    """Makes the spans of a record, as the variables `OTEL_*` of the environment want them."""

    def __init__(self, job: str, node: str) -> None:
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        resource = Resource.create({"service.instance.id": node})
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: "cluster-serving"}))
        self._job = job
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._scope = InstrumentationScope("cluster_serving", __version__)

    def spans(self, record: Published) -> Iterator[Any]:
        """Yield the spans of a record, each a `ReadableSpan`.

        A record with an invalid traceparent has none, and neither has a record that the sampler leaves out.
        """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.trace.sampling import Decision

        if (ids := parsed(record.row.traceparent)) is None:
            return
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        caller = trace.SpanContext(*ids, is_remote=True, trace_flags=flags)
        around = trace.set_span_in_context(trace.NonRecordingSpan(caller))
        decision = self._provider.sampler.should_sample(around, caller.trace_id, STAGES[0]).decision
        if decision is not Decision.RECORD_AND_SAMPLE:
            return
        told = self._told(record)
        for stage, (begin_ns, end_ns) in zip(STAGES, pairwise(record.instants_ns()), strict=True):
            own = trace.SpanContext(caller.trace_id, self._provider.id_generator.generate_span_id(), False, flags)
            failed = stage == "run" and record.error
            yield ReadableSpan(
                stage,
                own,
                caller,
                self._provider.resource,
                attributes=told.get(stage),
                kind=trace.SpanKind.CONSUMER if stage == "stream" else trace.SpanKind.INTERNAL,
                instrumentation_scope=self._scope,
                status=trace.Status(trace.StatusCode.ERROR, record.error) if failed else trace.Status(),
                start_time=begin_ns,
                end_time=end_ns,
            )

    def _told(self, record: Published) -> dict[str, dict[str, Any]]:
        """Return the attributes of each stage that has some. Names are those of OpenTelemetry where it has one."""
        row, batch = record.row, record.receipt
        run = {
            "cluster_serving.worker": batch.worker,
            "cluster_serving.model": batch.model,
            "messaging.batch.message_count": batch.batch,
        }
        return {
            "stream": {
                "messaging.system": "redis",
                "messaging.destination.name": self._job,
                "messaging.message.id": row.id.decode(),
                "cluster_serving.uri": row.uri.decode(errors="replace"),
                "cluster_serving.deliveries": row.deliveries,
            },
            "run": run | ({"error.type": record.error} if record.error else {}),
        }
