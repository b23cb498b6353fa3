//! rmcp 0.10 over HTTP+SSE: `peer-rmcp client URL REVISION` in front of the gateway,
//! `peer-rmcp server PORT REVISION` behind it. What is offered and tried is what the Python
//! programs beside this one offer and try.

mod client;
mod server;

use std::error::Error;

use rmcp::model::ProtocolVersion;

type Fallible<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["client", url, revision] => client::run(url, version(revision)?).await,
        ["server", port, revision] => server::run(port.parse()?, version(revision)?).await,
        _ => Err("usage: peer-rmcp client URL REVISION | server PORT REVISION".into()),
    }
}

fn version(revision: &str) -> Fallible<ProtocolVersion> {
    match revision {
        "2025-03-26" => Ok(ProtocolVersion::V_2025_03_26),
        "2025-06-18" => Ok(ProtocolVersion::V_2025_06_18),
        other => Err(format!("{other} is not tried").into()),
    }
}
