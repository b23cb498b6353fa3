//! Durations as metric families, with the names of OpenTelemetry's conventions for MCP.

use std::sync::Arc;

use super::family::{Family, Labels, Samples};
use crate::metrics::{Histograms, Measure, MethodLabel, Series};
use crate::protocol::MethodName;

/// A histogram's measure, Prometheus name, OpenTelemetry name, and help text.
pub(super) type Descriptor = (Measure, &'static str, Option<&'static str>, &'static str);

/// Histograms of the OpenTelemetry conventions.
pub(super) const OF_CONVENTIONS: &[Descriptor] = &[
    (
        Measure::ServerOperation,
        "mcp_server_operation_duration_seconds",
        Some("mcp.server.operation.duration"),
        "Time from a client's request to its answer.",
    ),
    (
        Measure::ClientOperation,
        "mcp_client_operation_duration_seconds",
        Some("mcp.client.operation.duration"),
        "Time from a request to a server to its answer.",
    ),
    (
        Measure::ServerSession,
        "mcp_server_session_duration_seconds",
        Some("mcp.server.session.duration"),
        "Duration of client sessions that ended.",
    ),
    (
        Measure::ClientSession,
        "mcp_client_session_duration_seconds",
        Some("mcp.client.session.duration"),
        "Duration of connections to servers that ended.",
    ),
];

/// Histograms specific to the gateway.
pub(super) const OF_GATEWAY: &[Descriptor] = &[(
    Measure::Overhead,
    "mcpvisor_overhead_seconds",
    None,
    "Part of a client's request time that was not spent at its server.",
)];

pub(super) fn histogram_family(
    (measure, name, otel_name, help): &Descriptor,
    histograms: &Histograms,
) -> Family {
    let of_measure = histograms
        .iter()
        .filter(|(series, _)| series.measure == *measure);
    let samples = of_measure.map(|(series, view)| (labels(series), view.clone()));
    Family {
        otel_name: *otel_name,
        ..Family::new(*name, *help, Samples::Histograms(samples.collect()))
    }
}

/// Labels with the names of the conventions, without those that a series lacks.
fn labels(series: &Series<Option<Arc<str>>>) -> Labels {
    let mut labels = Labels::new();
    let mut add = |name: &'static str, value: Option<String>| {
        labels.extend(value.map(|value| (name, value)));
    };
    let method = series.method;
    let is_call = method == Some(MethodLabel::Known(MethodName::ToolsCall));
    let item = series.item.as_deref().map(str::to_owned);
    add(
        "mcp.method.name",
        method.map(|method| method.as_str().to_owned()),
    );
    add(
        "gen_ai.operation.name",
        is_call.then(|| "execute_tool".to_owned()),
    );
    add(
        match is_call {
            true => "gen_ai.tool.name",
            false => "gen_ai.prompt.name",
        },
        item,
    );
    add("error.type", series.error.map(|error| error.label()));
    add(
        "rpc.response.status_code",
        series.error.and_then(|error| error.status_code()),
    );
    let revision = series.revision.map(|revision| revision.as_str().to_owned());
    add("mcp.protocol.version", revision);
    add(
        "network.transport",
        series.network.map(|network| network.as_str().to_owned()),
    );
    add(
        "mcpvisor.server",
        series.server.as_deref().map(str::to_owned),
    );
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{ErrorType, Network};
    use crate::protocol::{ErrorKind, Revision};

    fn known(name: MethodName) -> Option<MethodLabel> {
        Some(MethodLabel::Known(name))
    }

    fn shown(series: &Series<Option<Arc<str>>>) -> String {
        let labels = labels(series);
        let labels = labels.iter().map(|(name, value)| format!("{name}={value}"));
        labels.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_are_those_of_the_conventions() {
        let none = Series::of(Measure::ServerOperation);
        let call = Series {
            method: known(MethodName::ToolsCall),
            server: Some("docs".into()),
            item: Some("docs__find".into()),
            revision: Some(Revision::V2025_06_18),
            network: Some(Network::Tcp),
            ..none.clone()
        };
        let prompt = Series {
            method: known(MethodName::PromptsGet),
            item: Some("ask".into()),
            error: Some(ErrorType::Rpc(Some(-32602))),
            ..none.clone()
        };
        let failed = Series {
            method: known(MethodName::ToolsList),
            error: Some(ErrorType::Failure(ErrorKind::Overloaded, true)),
            ..none.clone()
        };
        let table = [
            (&none, ""),
            (
                &call,
                "mcp.method.name=tools/call gen_ai.operation.name=execute_tool \
                 gen_ai.tool.name=docs__find mcp.protocol.version=2025-06-18 \
                 network.transport=tcp mcpvisor.server=docs",
            ),
            (
                &prompt,
                "mcp.method.name=prompts/get gen_ai.prompt.name=ask error.type=-32602 \
                 rpc.response.status_code=-32602",
            ),
            (
                &failed,
                "mcp.method.name=tools/list error.type=overloaded \
                 rpc.response.status_code=-32603",
            ),
        ];
        for (series, expected) in table {
            assert_eq!(shown(series), expected);
        }
    }
}
