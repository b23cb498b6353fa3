"""Collectors that keep the spans and metrics that they are sent."""

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as messages
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service

WAIT_SECONDS = 30
SERVER, CLIENT = 2, 3
ERROR = 2


class Span:
    def __init__(self, resource, scope, span):
        self.resource = attributes(resource.attributes)
        self.scope = scope.name
        self.trace = span.trace_id.hex()
        self.id = span.span_id.hex()
        self.parent = span.parent_span_id.hex()
        self.name, self.kind = span.name, span.kind
        self.attributes = attributes(span.attributes)
        self.events = [(event.name, attributes(event.attributes)) for event in span.events]
        self.times = [event.time_unix_nano for event in span.events]
        self.start, self.end = span.start_time_unix_nano, span.end_time_unix_nano
        self.is_failed = span.status.code == ERROR

    def __repr__(self):
        return f"{self.name} {self.id} of {self.parent} {self.attributes} {self.events}"


def attributes(pairs):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


class Collector:
    """Spans that came so far, and the last metrics by their names; `headers` are those of the last
    request."""

    def __init__(self):
        self.spans, self.metrics, self.headers = [], {}, {}
        self.metrics_headers, self.metrics_resource = {}, {}
        self.changed = threading.Condition()

    def take(self, request, headers):
        with self.changed:
            self.headers = {name.lower(): value for name, value in headers}
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self.spans += [Span(resource.resource, scope.scope, it) for it in scope.spans]
            self.changed.notify_all()

    def take_metrics(self, request, headers):
        with self.changed:
            self.metrics_headers = {name.lower(): value for name, value in headers}
            [resource] = request.resource_metrics
            [scope] = resource.scope_metrics
            assert scope.scope.name == "mcpvisor"
            self.metrics_resource = attributes(resource.resource.attributes)
            self.metrics = {metric.name: metric for metric in scope.metrics}
            assert len(self.metrics) == len(scope.metrics), "a metric is there twice"
            self.changed.notify_all()

    def wait_for(self, what, choose):
        """What `choose` makes of all spans, once that is something."""
        return self.wait_until(f"{what} among {self.spans}", lambda: choose(self.spans))

    def wait_until(self, what, condition):
        with self.changed:
            if not self.changed.wait_for(condition, WAIT_SECONDS):
                raise AssertionError(f"no {what}")
            return condition()

    def of_trace(self, trace, count):
        """All spans of a trace, which are so many, the oldest first."""
        def complete(spans):
            found = [span for span in spans if span.trace == trace]
            return found if len(found) >= count else None

        found = self.wait_for(f"{count} spans of {trace}", complete)
        assert len(found) == count, found
        return sorted(found, key=lambda span: (span.start, span.kind))


class HttpCollector(Collector):
    """Listens at `port`, or at any that is free."""

    def __init__(self, port=0):
        super().__init__()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers["Content-Type"] == "application/x-protobuf"
                if self.path == "/v1/metrics":
                    request = metrics_messages.ExportMetricsServiceRequest.FromString(body)
                    collector.take_metrics(request, self.headers.items())
                    answer = metrics_messages.ExportMetricsServiceResponse().SerializeToString()
                else:
                    assert self.path == "/v1/traces", self.path
                    request = messages.ExportTraceServiceRequest.FromString(body)
                    collector.take(request, self.headers.items())
                    answer = messages.ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class GrpcCollector(Collector):
    def __init__(self):
        super().__init__()
        collector = self

        class Service(service.TraceServiceServicer):
            def Export(self, request, context):
                collector.take(request, context.invocation_metadata())
                return messages.ExportTraceServiceResponse()

        class MetricsService(metrics_service.MetricsServiceServicer):
            def Export(self, request, context):
                collector.take_metrics(request, context.invocation_metadata())
                return metrics_messages.ExportMetricsServiceResponse()

        self.server = grpc.server(ThreadPoolExecutor(2))
        service.add_TraceServiceServicer_to_server(Service(), self.server)
        metrics_service.add_MetricsServiceServicer_to_server(MetricsService(), self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def stop(self):
        self.server.stop(None)
