//! `/metrics`, as Prometheus reads it.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use crate::support::{Client, Gateway, Http, example, quick, text_of};

const DOCUMENTED: &str = include_str!("../../docs/metrics.md");

/// The address in the log of a gateway that was told to take any port.
fn address(gateway: &Gateway) -> SocketAddr {
    let log = fs::read_to_string(gateway.setup.path("log")).unwrap();
    let (_, after) = log.split_once("metrics are at http://").unwrap();
    after.split_once('/').unwrap().0.parse().unwrap()
}

/// The names of samples in an answer.
fn names(text: &str) -> BTreeSet<&str> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|sample| sample.split(['{', ' ']).next().unwrap())
        .collect()
}

#[tokio::test]
async fn metrics_are_those_that_are_documented_and_follow_what_happens() {
    let config = format!(
        "{}{}[metrics]\nlisten = \"127.0.0.1:0\"\n",
        quick(),
        example("one")
    );
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    let said = client
        .call("one__echo", serde_json::json!({"message": "m"}))
        .await;
    assert_eq!(text_of(&said), "m");
    let metrics = Http::new(address(&gateway), "GET", "/metrics");
    let answer = metrics.clone().send().await;
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.bytes().await).unwrap();
    for line in [
        "mcpvisor_sessions 1",
        "mcpvisor_calls_started_total 1",
        "mcpvisor_downstream_state{server=\"one\",state=\"up\"} 1",
        "mcpvisor_catalog_items{server=\"one\",kind=\"tools\"} 11",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let words = DOCUMENTED.split('`');
    let documented = words.filter(|word| word.starts_with("mcpvisor_"));
    assert_eq!(names(&text), documented.collect());
    let foreign = metrics.clone().header("Host", "evil.example").send().await;
    assert_eq!(foreign.status, 403);
    assert_eq!(metrics.path("/").send().await.status, 404);
}
