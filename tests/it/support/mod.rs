//! Shared by the tests: a running gateway, raw HTTP, an MCP client that hides nothing, and
//! servers that misbehave on demand.

mod authority;
mod bound;
mod broken_machine;
mod client;
mod gateway;
mod http;
mod issuer;
mod keeper;
pub(crate) mod login;
mod processes;
mod profile_api;
mod proofs;
mod servers;
mod sse;
mod stdio;
mod tls;
mod visitor;
mod web_server;

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, timeout};

pub(crate) use authority::Authority;
pub(crate) use bound::Bound;
pub(crate) use broken_machine::BrokenMachine;
pub(crate) use client::{Client, INITIALIZE, answer_in, call_params, initialize, request};
pub(crate) use gateway::{Gateway, Setup, quick};
pub(crate) use http::{Answer, Http};
pub(crate) use issuer::{Issuer, RESOURCE, unix_seconds};
pub(crate) use keeper::Keeper;
pub(crate) use processes::{alive, is_launcher, processes_of, signal};
pub(crate) use profile_api::{API_KEY, ProfileApi};
pub(crate) use proofs::ProofKey;
pub(crate) use servers::{Behaviour, HttpServer, UnknownMethod, example, python};
pub(crate) use sse::{Event, Events};
pub(crate) use stdio::StdioClient;
pub(crate) use tls::{CertificateAuthority, Pem, TlsClient};
pub(crate) use visitor::Visitor;
pub(crate) use web_server::serve_in_thread;

/// Nothing in a test takes longer, on however slow a machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The value of a future that must come in time.
#[track_caller]
pub(crate) fn soon<F: Future>(what: &str, future: F) -> impl Future<Output = F::Output> + use<F> {
    let message = format!(
        "not in time: {what} (at {})",
        std::panic::Location::caller()
    );
    async move {
        match timeout(DEADLINE, future).await {
            Ok(value) => value,
            Err(_) => panic!("{message}"),
        }
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The text of a tool's result.
#[track_caller]
pub(crate) fn text_of(result: &Value) -> &str {
    result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {result}"))
}

/// The gateway's words about a failure in a tool's result.
#[track_caller]
pub(crate) fn failure_of(result: &Value) -> &Value {
    assert_eq!(result["isError"], true, "{result}");
    let failure = &result["_meta"]["io.mcpvisor/error"];
    assert!(failure.is_object(), "{result}");
    failure
}

/// Names of the items of a list.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().map_or(&[][..], Vec::as_slice);
    items.iter().filter_map(|i| i["name"].as_str()).collect()
}
