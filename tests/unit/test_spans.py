"""Spans of a record: which traces are valid and sampled, and what is sent."""

# pyright: reportMissingImports=false
# (the packages are an extra, and the checkers pass without them too)
import sys
from typing import Any

import pytest

from cluster_serving.client.extras import install_command
from cluster_serving.client.protocol.requests import request_fields
from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.installed import NotInstalled
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.node.ring.metrics import COUNTER_CELLS, Count
from cluster_serving.node.ring.slot import Outcome, Row
from cluster_serving.node.ring.traceparent import is_sampled, parsed
from cluster_serving.node.writer.outcome import RowOutcome
from cluster_serving.node.writer.span_export import SpanExport, check_spans
from cluster_serving.node.writer.spans import STAGES, Published, SpanMaker
from support.span_receiver import span_receiver
from support.wait import wait_until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECEIPT = BatchReceipt("node", "sha256:m", 0, worker=3, batch=8, filled_ms=1005, wait_ms=2, run_ms=10, publish_ms=1)


@pytest.mark.parametrize(
    ("traceparent", "valid"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", True),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
        (f"cc-{TRACE}-{SPAN}-01what-comes-later", False),
        (f"00-{TRACE}-{SPAN}-01-what-comes-later", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}-0", False),
        (f"00-{TRACE}-{SPAN}", False),
        (f" 00-{TRACE}-{SPAN}-01", False),
        ("", False),
        ("\xff" * 55, False),
    ],
)
def test_invalid_traces_are_ignored(traceparent: str, valid: bool) -> None:
    """https://www.w3.org/TR/trace-context/#traceparent-header."""
    assert parsed(traceparent.encode("latin-1")) == ((int(TRACE, 16), int(SPAN, 16)) if valid else None)


def test_the_last_flag_says_whether_a_trace_is_sampled() -> None:
    flags = {f"{flag:02x}": is_sampled(f"00-{TRACE}-{SPAN}-{flag:02x}".encode()) for flag in range(256)}

    assert {flag for flag, sampled in flags.items() if sampled} == {f"{flag:02x}" for flag in range(1, 256, 2)}
    assert not is_sampled(b"")


def published(error: str = "", traceparent: str = f"00-{TRACE}-{SPAN}-01", read_us: int = 1_001_000) -> Published:
    row = Row(b"1000-7", b"cat", b"", 0, 0, traceparent=traceparent.encode(), read_us=read_us, deliveries=2)
    return Published(row, error, RECEIPT, 0.5, 1019)


def test_stages_follow_each_other() -> None:
    assert published().instants_ns() == [ms * 1_000_000 for ms in (1000, 1001.5, 1005, 1007, 1017, 1019)]
    late = published()._replace(row=Row(b"18446744073709551615-1", b"", b"", 0, 0))
    assert late.instants_ns() == [1_019_000_000] * 6
    assert published(read_us=0).instants_ns()[:3] == [ms * 1_000_000 for ms in (1000, 1000, 1005)]


@pytest.fixture
def maker() -> SpanMaker:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    return SpanMaker("job", "node")


def test_five_spans_below_the_caller(maker: SpanMaker) -> None:
    spans = list(maker.spans(published("InferenceFailed")))

    assert [span.name for span in spans] == list(STAGES)
    assert {(span.parent.trace_id, span.parent.span_id) for span in spans} == {(int(TRACE, 16), int(SPAN, 16))}
    assert {span.context.trace_id for span in spans} == {int(TRACE, 16)}
    assert spans[0].attributes == {
        "messaging.system": "redis",
        "messaging.destination.name": "job",
        "messaging.message.id": "1000-7",
        "cluster_serving.uri": "cat",
        "cluster_serving.deliveries": 2,
    }
    assert spans[3].attributes == {
        "cluster_serving.worker": 3,
        "cluster_serving.model": "sha256:m",
        "messaging.batch.message_count": 8,
        "error.type": "InferenceFailed",
    }
    assert [span.status.is_ok for span in spans] == [True, True, True, False, True]


@pytest.mark.slow
def test_what_a_slow_receiver_leaves_no_room_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    monkeypatch.setattr("cluster_serving.node.writer.span_export._INTERVAL_S", 60.0)  # the first request has all of 200
    counts = memoryview(bytearray(8 * COUNTER_CELLS)).cast("q")

    def ended(count: int) -> list[RowOutcome]:
        return [RowOutcome(Row(b"1-1", b"", b"", 0, 0, traceparent=traceparent), Outcome([0]))] * count

    traceparent = f"00-{TRACE}-{SPAN}-01".encode()
    with span_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        receiver.answers.clear()
        export = SpanExport("job", "node", counts)
        export.offer(ended(200), RECEIPT, 0.0, 2.0)
        wait_until(lambda: receiver.requests, "the first request")
        export.offer(ended(4100), RECEIPT, 0.0, 2.0)
        receiver.answers.set()
        wait_until(lambda: len(receiver.spans) == 5 * (200 + 4096), "the others have come")
        export.close()

    assert counts[Count.SPANS_LOST] == sum(counts) == 5 * 4


def test_the_environment_chooses_among_sampled_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

    def traced(sampler: str, share: str = "") -> int:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
        made = SpanMaker("job", "node")
        ids = (f"00-{(number << 57) + 1:032x}-{SPAN}-01" for number in range(128))
        return sum(bool(list(made.spans(published(traceparent=each)))) for each in ids)

    assert traced("parentbased_always_on") == 128
    assert traced("traceidratio", "0.25") == 32
    assert traced("always_off") == 0
    assert not list(SpanMaker("job", "node").spans(published(traceparent="00-1")))


def test_the_name_of_the_service_is_the_environments(monkeypatch: pytest.MonkeyPatch, maker: SpanMaker) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")

    def service(maker: SpanMaker) -> Any:
        return next(maker.spans(published())).resource.attributes["service.name"]

    assert (service(maker), service(SpanMaker("job", "node"))) == ("cluster-serving", "shop")


def test_a_start_names_what_is_missing_or_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(NotInstalled) as raised:
        check_spans({})
    monkeypatch.undo()
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

    assert str(raised.value).endswith(install_command("otel"))
    check_spans({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"})
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_PROTOCOL is grpc, but spans are sent by http/protobuf"):
        check_spans({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


def test_records_carry_the_current_span() -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    span = trace.NonRecordingSpan(trace.SpanContext(int(TRACE, 16), int(SPAN, 16), False, trace.TraceFlags(1)))

    without = request_fields("native", "uri", {"x": 1.0})
    with trace.use_span(span):
        fields = request_fields("native", "uri", {"x": 1.0})
        original = request_fields("original", "uri", {"x": 1.0})

    assert fields == [*without, b"traceparent", f"00-{TRACE}-{SPAN}-01".encode()]
    assert b"traceparent" not in [*without, *original]
