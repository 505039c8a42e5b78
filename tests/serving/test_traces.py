"""Traces as a collector receives them."""

import threading
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.served import CHAT, error_of, review, served

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="not installed: pip install -e '.[otel]'")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from judgelm.serving.middleware import RequestTracer

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector():
    """A collector on a free port: its address, and the exports that it received."""
    received = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", received
        finally:
            server.shutdown()
            thread.join()


def spans_of(received):
    exports = [ExportTraceServiceRequest.FromString(body) for body in received]
    scopes = [scope for export in exports for resource in export.resource_spans for scope in resource.scope_spans]
    return [span for scope in scopes for span in scope.spans]


def attributes(span):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_a_request_is_a_span_of_its_clients_trace_without_texts():
    with collector() as (endpoint, received):
        with closing(RequestTracer(endpoint)) as tracer, served(tracer=tracer) as server:
            reply = server.post(CHAT, review("secret"), traceparent=f"00-{TRACE}-{PARENT}-01")
            refused = server.post(CHAT, {"messages": []})
        assert reply.status_code == 200
        first, second = sorted(spans_of(received), key=lambda span: span.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, PARENT)
    assert second.trace_id.hex() != TRACE
    assert first.name == f"POST {CHAT}"
    facts = attributes(first)
    assert facts.pop("gen_ai.usage.input_tokens") > 0
    assert facts.pop("gen_ai.usage.output_tokens") > 0
    assert facts == {
        "http.request.method": "POST",
        "http.route": CHAT,
        "http.response.status_code": 200,
        "gen_ai.request.model": "judge",
        "judgelm.dialect": "vicuna-review",
        "judgelm.request_id": reply.headers["x-request-id"],
    }
    assert attributes(second)["error.type"] == error_of(refused)["code"]
    assert b"secret" not in b"".join(received)


def test_a_collector_that_is_away_costs_no_request(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # else the end waits 10 s for it
    with closing(RequestTracer("http://127.0.0.1:9/v1/traces")) as tracer, served(tracer=tracer) as server:
        assert server.post(CHAT, review()).status_code == 200
