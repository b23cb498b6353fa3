"""Checks the spans and metrics of gateways: check.py PROGRAM"""

import secrets
import sys
import threading

from collector import CLIENT, SERVER, GrpcCollector, HttpCollector, attributes
from gateway import Client, Gateway, read
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text

PROGRAM = sys.argv[1]
EXAMPLE = f"""
[servers.example]
command = "{PROGRAM}"
args = ["example-server"]
trusted = true
retry = true

[servers.brief]
command = "{PROGRAM}"
args = ["example-server"]
request_timeout = "200ms"
"""


def variables(collector, **more):
    named = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}",
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }
    protocol = "grpc" if isinstance(collector, GrpcCollector) else "http/protobuf"
    return {**named, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, **more}


def context(flags="01"):
    """A trace, a span of it and their `traceparent`."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, f"00-{trace}-{span}-{flags}"


def check_call(collector, client, where):
    """A call in the trace that the client names there."""
    trace, parent, traceparent = context()
    named = {where: {"traceparent": traceparent}}
    answer = client.call("example__echo", {"message": "hello"}, **named)
    assert answer["result"]["content"][0]["text"] == "hello", answer
    of_client, of_server = collector.of_trace(trace, 2)
    assert (of_client.kind, of_server.kind) == (SERVER, CLIENT)
    assert (of_client.parent, of_server.parent) == (parent, of_client.id)
    for span in (of_client, of_server):
        assert span.name == "tools/call example__echo", span
        assert span.scope == "mcpvisor" and not span.is_failed
        assert span.start <= span.end
        assert span.attributes["mcp.method.name"] == "tools/call"
        assert span.attributes["gen_ai.tool.name"] == "example__echo"
        assert span.attributes["mcpvisor.server"] == "example"
        assert "hello" not in str(span), "arguments are in no span"
    assert of_client.attributes["gen_ai.operation.name"] == "execute_tool"
    assert of_client.attributes["mcp.protocol.version"] == client.headers["MCP-Protocol-Version"]
    assert of_client.attributes["jsonrpc.request.id"] == f"check-{client.number}"
    assert ("mcp.session.id" in of_client.attributes) != client.sessionless, of_client
    whole = client.headers.get("Mcp-Session-Id")
    assert of_client.attributes.get("mcp.session.id") != whole or whole is None, "a secret"
    assert of_server.attributes["network.transport"] == "pipe"
    assert [name for name, _ in of_server.events] == ["mcpvisor.sent"]
    assert of_client.start <= of_server.start <= of_server.times[0] <= of_server.end <= of_client.end


def check_without_context(collector, client):
    before = {span.id for span in collector.spans}
    client.call("example__add", {"a": 1, "b": 2})

    def found(spans):
        new = [it for it in spans if it.id not in before and it.name == "tools/call example__add"]
        return new if len(new) == 2 else None

    spans = collector.wait_for("spans without a context", found)
    roots = [span for span in spans if not span.parent]
    assert len(roots) == 1 and roots[0].kind == SERVER, spans
    assert {span.trace for span in spans} == {roots[0].trace}


def check_unsampled(collector, client):
    """The client says that it does not record; a request after it is there, it is not."""
    trace, _, traceparent = context("00")
    client.call("example__echo", {"message": "hello"}, {"traceparent": traceparent})
    check_call(collector, client, "meta")
    assert all(span.trace != trace for span in collector.spans)


def check_failures(collector, client):
    table = [
        ("example__echo", {}, "tool_error", 2),
        ("brief__slow", {"steps": 50, "delay_ms": 1000}, "timeout", 2),
        ("example__unknown", {}, "-32602", 2),
    ]
    for tool, arguments, error, count in table:
        trace, _, traceparent = context()
        answer = client.call(tool, arguments, {"traceparent": traceparent})
        assert answer.get("result", {"isError": True})["isError"], answer
        spans = collector.of_trace(trace, count)
        for span in spans:
            assert span.is_failed and span.attributes["error.type"] == error, (tool, span)


def check_retry(collector, client, other):
    """A server that crashes under a call that may be repeated."""
    trace, _, traceparent = context()
    crashes = []

    def crash():
        if not crashes:
            crashes.append(threading.Thread(target=other.call, args=("example__crash", {})))
            crashes[0].start()

    arguments = {"steps": 10, "delay_ms": 50}
    meta = {"traceparent": traceparent}
    answer = client.call("example__slow", arguments, meta, on_progress=crash)
    crashes[0].join()
    assert not answer["result"].get("isError"), answer
    whole, first, second = collector.of_trace(trace, 3)
    assert first.parent == second.parent == whole.id
    assert first.is_failed and not second.is_failed and not whole.is_failed, (first, second)
    [(name, about)] = whole.events
    assert name == "mcpvisor.retry" and about["error.type"] == first.attributes["error.type"]


def check_chain(collector, first, sessionless):
    """Two gateways after each other: the spans of the second stand below those of the first."""
    client = Client(first, sessionless)
    for where in ("meta", "headers"):
        trace, parent, traceparent = context()
        client.call("next__example__echo", {"message": "on"}, **{where: {"traceparent": traceparent}})
        spans = collector.of_trace(trace, 4)
        by_id = {span.id: span for span in spans}
        [last] = [it for it in spans if it.attributes.get("network.transport") == "pipe"]
        above = by_id[by_id[last.parent].parent]
        assert above.attributes["network.transport"] == "tcp", above
        assert by_id[above.parent].parent == parent
        names = [by_id[it].resource["service.name"] for it in (above.id, last.id)]
        assert names == ["first", "mcpvisor"], names


def check_absent_collector(collector_type):
    """Calls go on while the collector is away; it gets later spans."""
    collector = collector_type()
    port = collector.port
    with Gateway(PROGRAM, EXAMPLE, variables(collector)) as gateway:
        client = Client(gateway, True)
        check_call(collector, client, "meta")
        collector.stop()
        client.call("example__echo", {"message": "hello"})
        gateway.wait_for_log("collector rejects spans")
        collector = HttpCollector(port)
        check_call(collector, client, "meta")
        gateway.wait_for_log("collector accepts spans again")
    collector.stop()


def check_sampler(collector):
    """Spans are sent before the gateway ends; a ratio of 0 sends none but the parent's."""
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"}
    slow = {"OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    before = len(collector.spans)
    trace, _, traceparent = context()
    with Gateway(PROGRAM, EXAMPLE, variables(collector, **sampler, **slow)) as gateway:
        client = Client(gateway, True)
        client.call("example__echo", {"message": "a"})
        client.call("example__echo", {"message": "b"}, {"traceparent": traceparent})
        assert len(collector.spans) == before
    collector.of_trace(trace, 2)
    assert len(collector.spans) == before + 2


def check_resource(collector, client):
    """A resource by its URI, which is in no name."""
    trace, _, traceparent = context()
    uri = "example://about"
    client.request("resources/read", {"uri": uri}, {"traceparent": traceparent})
    for span in collector.of_trace(trace, 2):
        assert span.name == "resources/read", span
        assert span.attributes["mcp.resource.uri"] == uri, span


def check_log(collector):
    """Records of a traced request carry the numbers of its span; others do not."""
    settings = {"RUST_LOG": "mcpvisor=debug", "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    with Gateway(PROGRAM, EXAMPLE, variables(collector, **settings)) as gateway:
        for sessionless in (True, False):
            client = Client(gateway, sessionless)
            # Ids that the other client has not.
            client.number += 100 if sessionless else 200
            trace, _, traceparent = context()
            client.call("example__echo", {"message": "a"}, {"traceparent": traceparent})
            traced = f"check-{client.number}"
            client.call("example__echo", {"message": "b"})
            other = f"check-{client.number}"
            span = collector.of_trace(trace, 2)[0]
            for kind in ("mcp_request", "mcp_response"):
                records = [gateway.wait_for_record(kind, it) for it in (traced, other)]
                assert records[0]["trace_id"] == trace and records[0]["span_id"] == span.id
                assert "trace_id" not in records[1], records[1]


def check_metrics(collector):
    """The same families as at `/metrics`, with a trace of each kind of request."""
    every = {"OTEL_METRIC_EXPORT_INTERVAL": "50", "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "key=a%2Cb"}
    # Of the gateways before.
    collector.metrics.clear()
    listen = '[metrics]\nlisten = "127.0.0.1:0"\n'
    with Gateway(PROGRAM, listen + EXAMPLE, variables(collector, **every)) as gateway:
        client = Client(gateway, False)
        trace, _, traceparent = context()
        client.call("example__echo", {"message": "a"}, {"traceparent": traceparent})
        client.call("example__echo", {"message": "b"}, {"traceparent": traceparent})
        labels = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "example__echo"}

        def calls(side):
            metric = collector.metrics.get(f"mcp.{side}.operation.duration")
            points = metric.histogram.data_points if metric else []
            found = [it for it in points if labels.items() <= attributes(it.attributes).items()]
            return found[0] if found and found[0].count == 2 else None

        for side in ("server", "client"):
            point = collector.wait_until(f"calls of the {side}", lambda: calls(side))
            metric = collector.metrics[f"mcp.{side}.operation.duration"]
            assert metric.unit == "s" and metric.histogram.aggregation_temporality == 2
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1 == 15
            assert sum(point.bucket_counts) == 2 and 0 < point.sum < 10
            assert 0 < point.start_time_unix_nano < point.time_unix_nano
            assert {it.trace_id.hex() for it in point.exemplars} == {trace}
        started = collector.metrics["mcpvisor_calls_started"].sum
        assert started.is_monotonic and started.data_points[0].as_int == 2
        assert collector.metrics["mcpvisor_sessions"].gauge.data_points[0].as_int == 1
        memory = collector.metrics["mcpvisor_child_rss_bytes"]
        assert memory.unit == "By"
        assert {attributes(it.attributes)["server"] for it in memory.gauge.data_points} == {
            "example",
            "brief",
        }
        assert collector.metrics_headers["key"] == "a,b"
        assert collector.metrics_resource["service.name"] == "mcpvisor"
        check_exposition(gateway, collector, trace)
        before = client.number
        client.call("example__echo", {"message": "c"})
    # The last numbers go out before it ends.
    assert client.number == before + 1
    assert collector.metrics["mcpvisor_calls_started"].sum.data_points[0].as_int == 3


def check_exposition(gateway, collector, trace):
    """As the official client reads it."""
    address = gateway.wait_for_log(r"metrics are at (http://[\d.:]+/metrics)").group(1)
    families = {it.name: it for it in open_metrics(read(address, "application/openmetrics-text"))}
    sent = {it.replace(".", "_") for it in collector.metrics}
    served = {it.removesuffix("_seconds") if it.startswith("mcp_") else it for it in families}
    assert sent == served, sent ^ served
    buckets = families["mcp_server_operation_duration_seconds"].samples
    exemplars = [it.exemplar for it in buckets if it.exemplar]
    assert [it.labels["trace_id"] for it in exemplars].count(trace) >= 1, exemplars
    older = read(address, "text/plain")
    assert trace not in older and "mcp_server_operation_duration_seconds_bucket" in older
    assert len(list(plain_text(older))) == len(families)


def check_off(collector):
    """Without the variables nothing is sent, and a client's context goes on as it is."""
    before = len(collector.spans)
    off = variables(collector, OTEL_SDK_DISABLED="true")
    wrong = variables(collector, OTEL_EXPORTER_OTLP_PROTOCOL="carrier-pigeon")
    for these in ({}, off, wrong):
        with Gateway(PROGRAM, EXAMPLE, these) as gateway:
            Client(gateway, True).call("example__echo", {"message": "a"})
            if these is wrong:
                gateway.wait_for_log("OTEL_EXPORTER_OTLP_PROTOCOL.*traces are not exported")
    assert len(collector.spans) == before, "spans although traces are off"


def check_protocol(collector):
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=for%20the%20collector"}
    with Gateway(PROGRAM, EXAMPLE, variables(collector, **headers)) as gateway:
        for sessionless in (True, False):
            client = Client(gateway, sessionless)
            for where in ("meta", "headers"):
                check_call(collector, client, where)
            check_without_context(collector, client)
            check_unsampled(collector, client)
            check_failures(collector, client)
            check_resource(collector, client)
            check_retry(collector, client, Client(gateway, sessionless))
        assert collector.headers["api-key"] == "for the collector", collector.headers
        assert collector.spans[0].resource["service.name"] == "mcpvisor"
        for sessionless in (True, False):
            table = f'[servers.next]\nurl = "http://{gateway.address}/mcp"\n'
            named = variables(collector, OTEL_SERVICE_NAME="first")
            with Gateway(PROGRAM, table, named) as first:
                check_chain(collector, first, sessionless)


def main():
    for collector in (HttpCollector(), GrpcCollector()):
        check_protocol(collector)
        check_sampler(collector)
        check_log(collector)
        check_metrics(collector)
        check_off(collector)
        print(f"{type(collector).__name__}: {len(collector.spans)} spans, all as they should be")
        collector.stop()
    check_absent_collector(HttpCollector)
    print("a collector that was away: good")


main()
