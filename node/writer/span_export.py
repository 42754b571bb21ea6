"""Way of the spans from the writer to a receiver of OTLP.

    writer ──offer──► published records, at most 4096 ──thread──► five spans each ──► OTLP over HTTP ──► receiver

OpenTelemetry's own `BatchSpanProcessor` tells nobody how many spans it throws away. Place, headers, certificates, timeout and so on
are those of the variables `OTEL_EXPORTER_OTLP_*`.
"""

# pyright: reportMissingImports=false
# (the packages are an extra, and the checkers pass without them too)
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from typing import Final

import structlog

from cluster_serving.client.servers.config.spellings import ConfigError
from cluster_serving.client.servers.process.installed import require
from cluster_serving.client.wire.receipt import BatchReceipt
from cluster_serving.node.ring.metrics import Count
from cluster_serving.node.ring.traceparent import is_sampled
from cluster_serving.node.writer.outcome import RowOutcome
from cluster_serving.node.writer.spans import STAGES, Published, SpanMaker

log = structlog.get_logger(__name__)

_MOST_WAITING: Final = 4096
_RECORDS_A_REQUEST: Final = 200
_INTERVAL_S: Final = 1.0
_LAST_S: Final = 1.0  # for the spans that are left when the node stops, within the time that a node has for stopping


def check_spans(environ: Mapping[str, str]) -> None:
    """Check that spans can be sent.

    Raises:
        ConfigError: the protocol is not the one that spans are sent by.
        NotInstalled: the extra is missing.
    """
    packages = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
    require(packages, "otel", "openTelemetry is set, and OpenTelemetry is")
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environ.get(name, "http/protobuf") != "http/protobuf":
            raise ConfigError(
                f"{name} is {environ[name]}, but spans are sent by http/protobuf: unset it, and let OTEL_EXPORTER_OTLP_ENDPOINT be "
                "the receiver's address for HTTP, such as http://localhost:4318"
            )


class SpanExport:
    """Sends the spans of published records from a thread. The writer never waits for the thread.

    Args:
        job: name of the job.
        node: name of the node.
        count: counters of the writer. `SPANS_LOST` is counted here.
    """

    def __init__(self, job: str, node: str, count: "memoryview[int]") -> None:
        self._job, self._node = job, node
        self._count, self._lock = count, threading.Lock()
        self._queue: deque[Published] = deque()
        self._wake = threading.Event()
        self._ending = False
        self._failing = False
        run = copy_context().run  # with the names of process and job for the log
        self._thread = threading.Thread(target=run, args=(self._run,), name="spans", daemon=True)
        self._thread.start()

    def offer(
        self, ended: Sequence[RowOutcome], receipt: BatchReceipt, clock_offset_ms: float, published_ms: float
    ) -> None:
        """Queue the traced records of a published batch. Records without room lose their spans."""
        for each in ended:
            if not is_sampled(each.row.traceparent):
                continue
            if len(self._queue) >= _MOST_WAITING:
                self._count_lost(len(STAGES))
            else:
                error = each.outcome.error[0] if each.outcome.error is not None else ""
                self._queue.append(Published(each.row, error, receipt, clock_offset_ms, published_ms))
        if len(self._queue) >= _RECORDS_A_REQUEST:
            self._wake.set()

    def close(self) -> None:
        """Send the queued spans for a second."""
        self._ending = True
        self._wake.set()
        self._thread.join(_LAST_S)

    def _run(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult

        errors = _Errors()
        try:
            make, exporter = SpanMaker(self._job, self._node), OTLPSpanExporter()
        except Exception as error:  # a variable of the environment is wrong
            log.error("no spans are sent", reason=str(error))
            return
        while not self._ending:
            self._wake.wait(_INTERVAL_S)
            self._wake.clear()
            while records := [self._queue.popleft() for _ in range(min(len(self._queue), _RECORDS_A_REQUEST))]:
                spans = [span for record in records for span in make.spans(record)]
                if spans:
                    errors.first = ""
                    taken = exporter.export(spans) is SpanExportResult.SUCCESS
                    self._tell(0 if taken else len(spans), errors.first)

    def _tell(self, lost: int, reason: str) -> None:
        """Count spans that the receiver did not take, and log when it begins to take none, and again takes some."""
        if lost:
            self._count_lost(lost)
        if bool(lost) != self._failing:
            self._failing = bool(lost)
            log.warning("no spans are sent", reason=reason) if lost else log.info("spans are sent again")

    def _count_lost(self, spans: int) -> None:
        with self._lock:
            self._count[Count.SPANS_LOST] += spans


class _Errors(logging.Handler):
    """First error of an export. The exporter logs its errors, at every try, and returns none."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()
