//! The edge that clients connect to: turns HTTP requests into messages to sessions, and what
//! sessions say into HTTP answers. No decision about MCP is made here.

mod accept;
mod body;
mod events;
mod guard;
mod headers;
mod health;
mod list_body;
mod mcp;
mod respond;
mod server;
mod settings;

pub use health::{Health, HealthSource, ServerHealth};
pub use server::{Front, FrontServer};
pub use settings::FrontSettings;
