"""A span of OpenTelemetry for each request, sent to a collector; never with texts."""

from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from judgelm.package import VERSION
from judgelm.serving.request_log import RequestRecord

_SERVER_ERROR = 500


class RequestTracer:
    """Makes spans that continue the client's trace, where the request has a `traceparent`.

    Spans are sent from a thread of their own; a collector that does not answer costs spans and no request.

    Args:
        endpoint: of the collector, for traces over HTTP: `http://localhost:4318/v1/traces`.
    """

    def __init__(self, endpoint: str) -> None:
        resource = Resource.create({"service.name": "judgelm", "service.version": VERSION})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("judgelm.serving", VERSION)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> Span:
        """The span of a request that begins."""
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        return self._tracer.start_span(method, self._propagator.extract(carrier), kind=SpanKind.SERVER)

    def end(self, span: Span, record: RequestRecord) -> None:
        """End a span with what is known of its request, by OpenTelemetry's names where it has some."""
        span.update_name(f"{record.method} {record.route}")
        span.set_attributes(
            {
                "http.request.method": record.method,
                "http.route": record.route,
                "http.response.status_code": record.status,
                "gen_ai.request.model": record.judge,
                "gen_ai.usage.input_tokens": record.prompt_tokens,
                "gen_ai.usage.output_tokens": record.completion_tokens,
                "judgelm.dialect": record.dialect,
                "judgelm.request_id": record.id,
            }
        )
        if record.error:
            span.set_attribute("error.type", record.error)
        if record.status == 0 or record.status >= _SERVER_ERROR:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def close(self) -> None:
        """Send the spans that are left."""
        self._provider.shutdown()
