//! The edge that clients connect to: turns HTTP requests into messages to sessions, and what
//! sessions say into HTTP answers. No decision about MCP is made here.

mod accept;
mod body;
mod caller_cache;
mod channel;
mod encode;
mod event_body;
mod guard;
mod headers;
mod health;
mod incoming;
mod legacy_sse;
mod list_body;
mod mcp;
mod new_connections;
mod respond;
mod server;
mod sessionless;
mod settings;
mod state;
mod stdio;

pub use server::FrontServer;
pub use settings::FrontSettings;
pub use state::{Front, Health, HealthSource, ServerHealth};
pub use stdio::{Relay, RelaySettings};
