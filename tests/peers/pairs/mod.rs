//! Every revision in front of every revision, over every transport. A scripted client and a
//! scripted server, each of which knows its revision and nothing else, speak through the real
//! binary; everything that comes to them is checked against the schema of their revision.

#![expect(clippy::unwrap_used, reason = "in a test that is the answer")]

mod client;
mod pair;
mod schema;
mod server;
mod steps;
mod table;
mod verdicts;

use std::time::Duration;

use mcpvisor::protocol::Revision;
use tokio::time::timeout;

use pair::{Back, Cell, Front, Pair};
use steps::STEPS;
use table::{Expect, expected};

/// The time that is waited in a step that must fail.
const SHORT: Duration = Duration::from_millis(300);

/// Longest wait of a step that must succeed. Only a step that fails takes so long.
const LONG: Duration = Duration::from_secs(30);

/// Faults that are shown of one step.
const FAULTS_MAX: usize = 2;

/// Does all steps of one pair; what went otherwise than the table says.
async fn try_pair(pair: Pair) -> Vec<String> {
    if !matches!(expected("*", pair), Expect::Works) {
        return Vec::new();
    }
    let cell = Cell::start(pair).await;
    let mut wrong = Vec::new();
    for step in STEPS {
        let expected = expected(step.name, pair);
        let patience = match expected {
            Expect::Works => LONG,
            _ => SHORT,
        };
        cell.client.set_patience(patience);
        let done = timeout(3 * LONG, (step.run)(&cell)).await;
        let done = done.unwrap_or_else(|_| Err("not in time".to_owned()));
        let faults = cell.verdicts.take();
        let found = judge(expected, done, faults).into_iter();
        wrong.extend(found.map(|what| format!("{pair}: {}: {what}", step.name)));
        if step.name == "open" && !wrong.is_empty() {
            break;
        }
    }
    cell.end().await;
    wrong
}

/// Outcomes that differ from the expected ones.
fn judge(expected: Expect, done: Result<(), String>, mut faults: Vec<String>) -> Vec<String> {
    match (expected, done) {
        (Expect::Works, Err(fault)) => faults.push(fault),
        (Expect::Cannot(why), Ok(())) => faults.push(format!("works, against: {why}")),
        (Expect::Missing(why), Ok(())) if faults.is_empty() => {
            faults.push(format!("works now, so the row is to be removed: {why}"));
        }
        (Expect::Missing(_), _) => faults.clear(),
        (Expect::Works, Ok(())) | (Expect::Cannot(_), Err(_)) => {}
    }
    let more = faults.len().saturating_sub(FAULTS_MAX);
    if more > 0 {
        faults.truncate(FAULTS_MAX);
        faults.push(format!("and {more} more"));
    }
    faults
}

async fn try_all(pairs: impl IntoIterator<Item = Pair>) {
    let mut wrong = Vec::new();
    for pair in pairs {
        wrong.extend(try_pair(pair).await);
    }
    assert!(
        wrong.is_empty(),
        "{} faults:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// One client in front of servers of all revisions, over every transport to them.
async fn in_front_of_all(client: Revision, front: Front) {
    let backs = [Back::Http, Back::Sse, Back::Stdio];
    let all = Revision::ALL.into_iter().flat_map(|server| {
        backs.map(|back| Pair {
            client,
            front,
            server,
            back,
        })
    });
    try_all(all).await;
}

#[tokio::test]
async fn a_client_of_2024_10_07_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2024_10_07, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2024_11_05_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2024_11_05, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2024_11_05_over_sse_in_front_of_all() {
    in_front_of_all(Revision::V2024_11_05, Front::Sse).await;
}

#[tokio::test]
async fn a_client_of_2024_11_05_over_stdio_in_front_of_all() {
    in_front_of_all(Revision::V2024_11_05, Front::Stdio).await;
}

#[tokio::test]
async fn a_client_of_2025_03_26_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2025_03_26, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2025_03_26_over_sse_in_front_of_all() {
    in_front_of_all(Revision::V2025_03_26, Front::Sse).await;
}

#[tokio::test]
async fn a_client_of_2025_03_26_over_stdio_in_front_of_all() {
    in_front_of_all(Revision::V2025_03_26, Front::Stdio).await;
}

#[tokio::test]
async fn a_client_of_2025_06_18_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2025_06_18, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2025_06_18_over_sse_in_front_of_all() {
    in_front_of_all(Revision::V2025_06_18, Front::Sse).await;
}

#[tokio::test]
async fn a_client_of_2025_06_18_over_stdio_in_front_of_all() {
    in_front_of_all(Revision::V2025_06_18, Front::Stdio).await;
}

#[tokio::test]
async fn a_client_of_2025_11_25_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2025_11_25, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2025_11_25_over_sse_in_front_of_all() {
    in_front_of_all(Revision::V2025_11_25, Front::Sse).await;
}

#[tokio::test]
async fn a_client_of_2025_11_25_over_stdio_in_front_of_all() {
    in_front_of_all(Revision::V2025_11_25, Front::Stdio).await;
}

#[tokio::test]
async fn a_client_of_2026_07_28_over_http_in_front_of_all() {
    in_front_of_all(Revision::V2026_07_28, Front::Http).await;
}

#[tokio::test]
async fn a_client_of_2026_07_28_over_stdio_in_front_of_all() {
    in_front_of_all(Revision::V2026_07_28, Front::Stdio).await;
}

/// Nothing, unless the gateway started this as its server.
#[test]
fn the_child_of_the_gateway() {
    server::relay();
}
