//! Durations in the names of OpenTelemetry's conventions for MCP, in the form of Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::{HistogramView, Histograms, Measure, MethodLabel, Series};
use crate::protocol::MethodName;

/// The labels of one series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A histogram's measure, name and help.
type Descriptor = (Measure, &'static str, &'static str);

/// Those of the conventions.
pub(super) const OF_CONVENTIONS: &[Descriptor] = &[
    (
        Measure::ServerOperation,
        "mcp_server_operation_duration_seconds",
        "Time from a client's request to its answer.",
    ),
    (
        Measure::ClientOperation,
        "mcp_client_operation_duration_seconds",
        "Time from a request to a server to its answer.",
    ),
    (
        Measure::ServerSession,
        "mcp_server_session_duration_seconds",
        "How long sessions of clients lasted that ended.",
    ),
    (
        Measure::ClientSession,
        "mcp_client_session_duration_seconds",
        "How long connections to servers lasted that ended.",
    ),
];

/// Those of the gateway, without its prefix.
pub(super) const OF_GATEWAY: &[Descriptor] = &[(
    Measure::Overhead,
    "overhead_seconds",
    "Time of a client's request that its server did not take.",
)];

/// Some of the histograms.
#[derive(Debug)]
pub(super) struct HistogramCollector {
    pub(super) descriptors: &'static [Descriptor],
    pub(super) histograms: Arc<Histograms>,
}

impl Collector for HistogramCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (measure, name, help) in self.descriptors {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            let histograms = self.histograms.iter();
            for (series, view) in histograms.filter(|(series, _)| series.measure == *measure) {
                let labels = labels(series);
                match labels.is_empty() {
                    true => encode(view, &mut family)?,
                    false => encode(view, &mut family.encode_family(&labels)?)?,
                }
            }
        }
        Ok(())
    }
}

fn encode(view: &HistogramView, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    encoder.encode_histogram::<NoLabelSet>(view.sum, view.count, &view.buckets, None)
}

/// In the names of the conventions; what a series does not have is left out.
fn labels(series: &Series<Option<Arc<str>>>) -> Labels {
    let mut labels = Labels::new();
    let mut add = |name: &'static str, value: Option<String>| {
        labels.extend(value.map(|value| (name, value)));
    };
    let method = series.method;
    let is_call = method == Some(MethodLabel::Known(MethodName::ToolsCall));
    let item = series.item.as_deref().map(str::to_owned);
    add(
        "mcp_method_name",
        method.map(|method| method.as_str().to_owned()),
    );
    add(
        "gen_ai_operation_name",
        is_call.then(|| "execute_tool".to_owned()),
    );
    add(
        match is_call {
            true => "gen_ai_tool_name",
            false => "gen_ai_prompt_name",
        },
        item,
    );
    add("error_type", series.error.map(|error| error.label()));
    add(
        "rpc_response_status_code",
        series.error.and_then(|error| error.status_code()),
    );
    let revision = series.revision.map(|revision| revision.as_str().to_owned());
    add("mcp_protocol_version", revision);
    add(
        "network_transport",
        series.network.map(|network| network.as_str().to_owned()),
    );
    add(
        "mcpvisor_server",
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
                "mcp_method_name=tools/call gen_ai_operation_name=execute_tool \
                 gen_ai_tool_name=docs__find mcp_protocol_version=2025-06-18 \
                 network_transport=tcp mcpvisor_server=docs",
            ),
            (
                &prompt,
                "mcp_method_name=prompts/get gen_ai_prompt_name=ask error_type=-32602 \
                 rpc_response_status_code=-32602",
            ),
            (
                &failed,
                "mcp_method_name=tools/list error_type=overloaded \
                 rpc_response_status_code=-32603",
            ),
        ];
        for (series, expected) in table {
            assert_eq!(shown(series), expected);
        }
    }
}
