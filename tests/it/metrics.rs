//! `/metrics`, as Prometheus reads it.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use serde_json::json;

use crate::sessionless::modern_as;
use crate::support::{Client, Gateway, Http, call_params, example, quick, text_of, until};

const DOCUMENTED: &str = include_str!("../../docs/metrics.md");

/// The address in the log of a gateway that was told to take any port.
pub(crate) fn address(gateway: &Gateway) -> SocketAddr {
    let log = fs::read_to_string(gateway.setup.path("log")).unwrap();
    let (_, after) = log.split_once("metrics are at http://").unwrap();
    after.split_once('/').unwrap().0.parse().unwrap()
}

/// The metrics in an answer: those that have samples, or could have some.
fn names(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let name = |line: &str| match line.split_once(' ').unwrap() {
        (name, "counter") => format!("{name}_total"),
        (name, _) => name.to_owned(),
    };
    described.map(name).collect()
}

/// The names of metrics in the documentation.
fn documented() -> BTreeSet<String> {
    let words = DOCUMENTED.split('`').skip(1).step_by(2);
    let prefixes = ["mcpvisor_", "mcp_server_", "mcp_client_", "process_"];
    let is_name = |word: &&str| prefixes.iter().any(|prefix| word.starts_with(prefix));
    // A label, and the value of one.
    let others = ["mcpvisor_server", "process_crashed"];
    let names = words.filter(|word| is_name(word) && !others.contains(word));
    names.map(str::to_owned).collect()
}

pub(crate) async fn start(servers: &str) -> (Gateway, Http) {
    let config = format!("{}{servers}[metrics]\nlisten = \"127.0.0.1:0\"\n", quick());
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let metrics = Http::new(address(&gateway), "GET", "/metrics");
    (gateway, metrics)
}

pub(crate) async fn scrape(metrics: &Http) -> String {
    let accept = "application/openmetrics-text";
    let answer = metrics.clone().header("Accept", accept).send().await;
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.bytes().await).unwrap()
}

/// The value of a metric without labels.
pub(crate) fn metric(text: &str, name: &str) -> u64 {
    let mut samples = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = samples.find(|(found, _)| *found == name).unwrap();
    value.parse().unwrap()
}

#[track_caller]
fn assert_samples(text: &str, samples: &[&str]) {
    for sample in samples {
        let (name, _) = sample.split_once(['{', ' ']).unwrap();
        let found: Vec<_> = text.lines().filter(|it| it.starts_with(name)).collect();
        assert!(found.contains(sample), "{sample}\n{found:#?}");
    }
}

#[tokio::test]
async fn metrics_are_those_that_are_documented_and_follow_what_happens() {
    let (gateway, metrics) = start(&example("one")).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let said = client.call("one__echo", json!({"message": "m"})).await;
    assert_eq!(text_of(&said), "m");
    // The process that compared the lists ends.
    let text = until("one process", || async {
        let text = scrape(&metrics).await;
        text.contains("mcpvisor_children{server=\"one\"} 1\n")
            .then_some(text)
    })
    .await;
    assert_samples(
        &text,
        &[
            "mcpvisor_sessions 1",
            "mcpvisor_calls_started_total 1",
            "mcpvisor_downstream_state{server=\"one\",state=\"up\"} 1",
            "mcpvisor_catalog_items{server=\"one\",kind=\"tools\"} 11",
            "mcpvisor_children{server=\"one\"} 1",
            "mcpvisor_overhead_seconds_count 1",
            "mcpvisor_mailbox_depth{actor=\"dispatcher\"} 0",
            "mcpvisor_supervisor_escalations_total{actor=\"dispatcher\"} 0",
            "mcpvisor_supervisor_escalations_total{server=\"one\"} 0",
            "mcpvisor_deadline_exceeded_total{hop=\"server\"} 0",
        ],
    );
    assert!(text.contains("mcpvisor_mailbox_wait_seconds{thread=\"0\"} 0."));
    assert_eq!(names(&text), documented());
    let foreign = metrics.clone().header("Host", "evil.example").send().await;
    assert_eq!(foreign.status, 403);
    assert_eq!(metrics.path("/").send().await.status, 404);
}

#[tokio::test]
async fn requests_and_sessions_are_counted_by_how_they_ended() {
    let (gateway, metrics) = start(&example("one")).await;
    let client = Client::open(&gateway).await;
    let failed = client.call("one__add", json!({"a": "x"})).await;
    assert_eq!(failed["isError"], true);
    let unknown = json!({"name": "one__nothing"});
    client.refused("prompts/get", unknown).await;
    client.refused("vendor/thing", json!({})).await;
    let list = modern_as(&gateway, "l", "tools/list", json!({}), json!({}));
    assert_eq!(list.send().await.status, 200);
    client.call("one__crash", json!({})).await;
    gateway.wait_renewed("one", 1).await;
    assert_eq!(client.delete().await.status, 200);
    let text = scrape(&metrics).await;
    let of_client = "mcp_protocol_version=\"2025-11-25\",network_transport=\"tcp\"";
    let of_server =
        "mcp_protocol_version=\"2025-11-25\",network_transport=\"pipe\",mcpvisor_server=\"one\"";
    let tool = |name| {
        format!(
            "mcp_method_name=\"tools/call\",gen_ai_operation_name=\"execute_tool\",gen_ai_tool_name=\"one__{name}\""
        )
    };
    let (add, crash) = (tool("add"), tool("crash"));
    let samples = [
        format!(
            "mcp_server_operation_duration_seconds_count{{{add},error_type=\"tool_error\",{of_client},mcpvisor_server=\"one\"}} 1"
        ),
        format!(
            "mcp_client_operation_duration_seconds_count{{{add},error_type=\"tool_error\",{of_server}}} 1"
        ),
        format!(
            "mcp_server_operation_duration_seconds_count{{mcp_method_name=\"prompts/get\",gen_ai_prompt_name=\"one__nothing\",error_type=\"-32602\",rpc_response_status_code=\"-32602\",{of_client},mcpvisor_server=\"one\"}} 1"
        ),
        format!(
            "mcp_server_operation_duration_seconds_count{{mcp_method_name=\"_other\",error_type=\"-32601\",rpc_response_status_code=\"-32601\",{of_client},mcpvisor_server=\"one\"}} 1"
        ),
        "mcp_server_operation_duration_seconds_count{mcp_method_name=\"tools/list\",mcp_protocol_version=\"2026-07-28\",network_transport=\"tcp\"} 1".to_owned(),
        format!(
            "mcp_server_operation_duration_seconds_count{{{crash},error_type=\"server_lost\",{of_client},mcpvisor_server=\"one\"}} 1"
        ),
        format!(
            "mcp_client_operation_duration_seconds_count{{{crash},error_type=\"server_lost\",{of_server}}} 1"
        ),
        format!("mcp_server_session_duration_seconds_count{{{of_client}}} 1"),
        format!(
            "mcp_client_session_duration_seconds_count{{error_type=\"process_crashed\",{of_server}}} 1"
        ),
        "mcpvisor_child_exits_total{server=\"one\",cause=\"failed\"} 1".to_owned(),
        "mcpvisor_downstream_restarts_total{server=\"one\",reason=\"process_crashed\"} 1".to_owned(),
        // Those that a server answered: the tool that failed, the unknown prompt and the unknown method.
        "mcpvisor_overhead_seconds_count 3".to_owned(),
    ];
    assert_samples(&text, &samples.each_ref().map(String::as_str));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_request_as_cancelled() {
    let (gateway, metrics) = start(&example("one")).await;
    let slow = call_params("one__slow", json!({"steps": 100, "delay_ms": 1000}));
    let call = modern_as(&gateway, "s", "tools/call", slow, json!({}));
    let call = tokio::spawn(call.send());
    until("the call is at its server", || async {
        (gateway.server("one").await["connection"]["in_flight"] == 1).then_some(())
    })
    .await;
    call.abort();
    let cancelled = "gen_ai_tool_name=\"one__slow\",error_type=\"cancelled\"";
    until("the call is counted", || async {
        scrape(&metrics).await.contains(cancelled).then_some(())
    })
    .await;
}

#[tokio::test]
async fn programs_that_do_not_know_open_metrics_read_the_older_form() {
    let (_gateway, metrics) = start(&example("one")).await;
    let accepted = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;q=0.5";
    let table = [
        (
            accepted,
            "application/openmetrics-text",
            "counter\nmcpvisor_calls_started_total 0",
            true,
        ),
        (
            "*/*",
            "text/plain",
            "_total counter\nmcpvisor_calls_started_total 0",
            false,
        ),
    ];
    for (accept, content_type, counter, has_end) in table {
        let answer = metrics.clone().header("Accept", accept).send().await;
        let found = answer.header("Content-Type").unwrap_or_default().to_owned();
        assert!(found.starts_with(content_type), "{accept}: {found}");
        let text = String::from_utf8(answer.bytes().await).unwrap();
        assert!(text.contains(counter), "{accept}");
        assert_eq!(text.ends_with("# EOF\n"), has_end, "{accept}");
    }
}
