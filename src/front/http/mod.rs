//! The HTTP server, and the MCP endpoint of Streamable HTTP.

mod application;
mod caller_cache;
mod challenge;
pub(super) mod client_address;
mod client_seats;
pub(super) mod client_socket;
mod cors;
mod endpoint;
pub(super) mod entrance;
pub(super) mod new_connections;
mod server;
mod server_card;
mod session_credentials;
mod sessionless;
pub(super) mod tcp_server;

pub(super) mod accept;
pub(super) mod body;
pub(super) mod event_body;
pub(super) mod expiry;
pub(super) mod guard;
pub(super) mod handler;
pub(super) mod headers;
mod parts_body;
mod request_clock;
mod resource_metadata;
pub(super) mod respond;
mod worker_numbers;

pub use client_seats::clients_max;
pub use server::{FrontListener, FrontServer, PeerListener};
