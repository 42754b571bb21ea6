"""A receiver of spans by OTLP over HTTP, as OpenTelemetry's collector is one."""

# pyright: reportMissingImports=false
# (the packages are an extra, and the checkers pass without them too)
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.http_server import HttpServer


class SpanReceiver:
    """A receiver on a free port of this machine."""

    def __init__(self) -> None:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.spans: list[Any] = []
        """Spans so far, in the order of their arrival."""
        self.resources: list[dict[str, str]] = []
        """Text attributes of the resource of each of the spans."""
        self.status = 200
        self.requests = 0
        self.answers = threading.Event()
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.requests += 1
                receiver.answers.wait()
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
                accepted = ExportTraceServiceRequest.FromString(body).resource_spans if receiver.status == 200 else ()
                for group in accepted:
                    resource = {each.key: each.value.string_value for each in group.resource.attributes}
                    for scope in group.scope_spans:
                        receiver.resources += [resource] * len(scope.spans)
                        receiver.spans += scope.spans
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        self._server = HttpServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def of(self, trace_id: int) -> list[Any]:
        """The spans of a trace, by their begin."""
        own = [span for span in self.spans if span.trace_id == trace_id.to_bytes(16, "big")]
        return sorted(own, key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))

    def close(self) -> None:
        """Take no more spans: connections are refused."""
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def span_receiver() -> Generator[SpanReceiver]:
    """A receiver for a block."""
    receiver = SpanReceiver()
    try:
        yield receiver
    finally:
        receiver.close()
