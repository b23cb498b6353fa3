//! The behaviour of a played server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

/// The behaviour of the server.
pub(crate) struct Script {
    pub(crate) revision: &'static str,
    /// The revision that it speaks on links that begin with a handshake, as SDKs do that pin a
    /// link to the era of its first message.
    pub(crate) with_handshake: Option<&'static str>,
    pub(crate) capabilities: Value,
    pub(crate) instructions: Option<&'static str>,
    /// Lists by the member that holds them.
    pub(crate) lists: BTreeMap<&'static str, Vec<Value>>,
    /// Tools that it lists besides to clients that declare elicitation in a handshake.
    pub(crate) tools_that_ask: Vec<Value>,
    /// Items on one page; zero is one page for all.
    pub(crate) page: usize,
    /// Methods that are never answered.
    pub(crate) mute: BTreeSet<&'static str>,
    /// Methods that are answered with an error.
    pub(crate) refused: BTreeSet<&'static str>,
    /// Milliseconds that the lists of a sessionless server live; zero says nothing.
    pub(crate) ttl_ms: u64,
    /// Whether a handshake of another revision is refused instead of answered with its own.
    pub(crate) insists: bool,
    /// Methods that fail with an internal error.
    pub(crate) failing: BTreeSet<&'static str>,
    /// Methods over which the process ends as soon as it has read them.
    pub(crate) fatal: BTreeSet<&'static str>,
    /// Whether only one process can run; further ones exit at once.
    pub(crate) runs_once: bool,
    /// How long after its start the process begins to read.
    pub(crate) starts_after: Duration,
    /// Requests but `initialize` are refused with an unknown session, until so many handshakes.
    pub(crate) forgets: usize,
    /// Nothing is read.
    pub(crate) is_deaf: bool,
    /// Frames that fit in the queue of a link.
    pub(crate) queue: usize,
}

/// The revision of a server that is played without sessions.
pub(crate) const SESSIONLESS: &str = "2026-07-28";

impl Default for Script {
    fn default() -> Self {
        let tools = ["echo", "hold", "panic"].map(tool).to_vec();
        Self {
            revision: "2025-11-25",
            with_handshake: None,
            capabilities: json!({"tools": {}}),
            instructions: None,
            lists: BTreeMap::from([("tools", tools)]),
            tools_that_ask: Vec::new(),
            page: 0,
            mute: BTreeSet::new(),
            refused: BTreeSet::new(),
            insists: false,
            failing: BTreeSet::new(),
            fatal: BTreeSet::new(),
            runs_once: false,
            starts_after: Duration::ZERO,
            ttl_ms: 0,
            forgets: 0,
            is_deaf: false,
            queue: 10_000,
        }
    }
}

pub(crate) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

/// Cursors are the number of items before the page.
pub(crate) fn page(script: &Script, member: &str, params: &Value) -> Value {
    let all = script.lists.get(member).cloned().unwrap_or_default();
    let start = params["cursor"].as_str().unwrap_or("0");
    let start: usize = start.parse().unwrap();
    let size = if script.page == 0 {
        all.len().max(1)
    } else {
        script.page
    };
    let items: Vec<_> = all.iter().skip(start).take(size).collect();
    let mut result = json!({ member: items });
    if start + size < all.len() {
        result["nextCursor"] = json!((start + size).to_string());
    }
    result
}
