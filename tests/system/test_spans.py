"""Spans of a node, as a receiver of OTLP gets them: below the span of the caller, over the queue and over HTTP."""

# pyright: reportMissingImports=false
# (the packages are an extra, and the checkers pass without them too)
import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster_serving.client import AsyncInputQueue, InputQueue, RecordFailed
from cluster_serving.node.writer.spans import STAGES
from support.models import MODELS
from support.private_redis import PrivateRedis
from support.running_frontend import running_frontend
from support.running_node import RunningNode, running_node
from support.span_receiver import SpanReceiver, span_receiver
from support.wait import wait_until

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
pytestmark = pytest.mark.measured
JOB = "traced"
ROW = np.ones(4, np.float32)


@pytest.fixture(scope="module")
def receiver() -> Iterator[SpanReceiver]:
    with span_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def node(
    redis_server: PrivateRedis, receiver: SpanReceiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningNode]:
    settings = {"modelPath": str(MODELS / "affine.py"), "jobName": JOB, "openTelemetry": True}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with running_node(tmp_path_factory.mktemp("node"), redis_server, **settings) as node:
            yield node


def trace_of(number: int) -> tuple[int, int, str]:
    """Ids of a trace and of the caller's span, and their traceparent."""
    return number, number + 1, f"00-{number:032x}-{number + 1:016x}-01"


def attributes(span: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_http_passes_the_trace_of_its_caller(
    node: RunningNode, redis_server: PrivateRedis, receiver: SpanReceiver, tmp_path: Path
) -> None:
    trace_id, caller, traceparent = trace_of(0xABC)
    body = json.dumps({"instances": [{"x": [1, 1, 1, 1]}]}).encode()
    with running_frontend(tmp_path, redis_server, jobName=JOB) as frontend:
        for header in (trace_of(0)[2], traceparent):  # the first one is invalid
            request = urllib.request.Request(  # noqa: S310 - our own http URL
                f"{frontend.url}/predict", data=body, headers={"traceparent": header}
            )
            with urllib.request.urlopen(request) as reply:  # noqa: S310 - our own http URL
                assert reply.status == 200
        wait_until(lambda: receiver.of(trace_id), "the spans have come")

    spans = receiver.of(trace_id)
    assert [span.name for span in spans] == list(STAGES)
    assert {span.parent_span_id for span in spans} == {caller.to_bytes(8, "big")}
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)
    assert [span.end_time_unix_nano for span in spans[:-1]] == [span.start_time_unix_nano for span in spans[1:]]
    assert attributes(spans[0])["messaging.destination.name"] == JOB
    assert attributes(spans[3])["messaging.batch.message_count"] == 1
    assert (
        receiver.resources[-1].items()
        >= {
            "service.name": "cluster-serving",
            "service.instance.id": node.heartbeat()["node"],
            "deployment.environment.name": "test",
        }.items()
    )
    assert receiver.of(0) == []


def test_programs_send_their_current_span(
    node: RunningNode, redis_server: PrivateRedis, receiver: SpanReceiver
) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("program")
    with InputQueue(port=redis_server.port, name=JOB) as queue:
        queue.predict(ROW, timeout=60)
        with tracer.start_as_current_span("one") as one:
            queue.predict(ROW, timeout=60)
        with tracer.start_as_current_span("many") as many:
            list(queue.predict_many([ROW, ROW]))
        with tracer.start_as_current_span("bad") as bad, pytest.raises(RecordFailed):
            queue.predict(-ROW, timeout=60)

    async def ask() -> None:
        async with AsyncInputQueue(port=redis_server.port, name=JOB) as queue:
            await queue.predict(ROW, timeout=60)

    with tracer.start_as_current_span("async") as later:
        asyncio.run(ask())
    traces = [span.get_span_context().trace_id for span in (one, many, bad, later)]
    wait_until(lambda: receiver.of(traces[-1]), "the spans have come")

    assert [len(receiver.of(trace_id)) for trace_id in traces] == [5, 10, 5, 5]
    run = receiver.of(traces[2])[3]
    assert (run.status.code, run.status.message, attributes(run)["error.type"]) == (2, *["InferenceFailed"] * 2)


def test_a_receiver_that_refuses_costs_spans_and_no_answers(
    node: RunningNode, redis_server: PrivateRedis, receiver: SpanReceiver
) -> None:
    from opentelemetry import trace

    assert node.heartbeat()["spans_lost"] == 0
    receiver.status = 400
    span = trace.NonRecordingSpan(trace.SpanContext(1, 2, False, trace.TraceFlags(1)))
    try:
        with trace.use_span(span), InputQueue(port=redis_server.port, name=JOB) as queue:
            for _ in range(3):
                queue.predict(ROW, timeout=60)
        wait_until(lambda: node.heartbeat()["spans_lost"] == 15, "the spans are counted as lost")
    finally:
        receiver.status = 200
    with trace.use_span(span), InputQueue(port=redis_server.port, name=JOB) as queue:
        queue.predict(ROW, timeout=60)
    wait_until(lambda: len(receiver.of(1)) == 5, "the spans have come")
    wait_until(lambda: "spans are sent again" in node.log, "the log says it")
    assert node.log.count("no spans are sent") == node.log.count("spans are sent again") == 1
    assert node.heartbeat()["spans_lost"] == 15
