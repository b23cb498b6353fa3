//! mcpvisor: a supervised gateway for MCP servers.
//!
//! Clients connect to a single endpoint in front of many MCP servers. The modules below are in
//! reading order, from the leaves to the top; a module imports only from those above it
//! (`tests/parts/tidy` enforces the layers of `docs/architecture.md`).

#[cfg(not(unix))]
compile_error!(
    "mcpvisor runs on Unix systems: it depends on Unix sockets, signals, process groups and file ownership"
);

mod cipher;
pub mod id;
pub mod masking;
mod memory;
pub mod protocol;
pub mod sandbox;
pub mod telemetry;

pub mod bridge;
pub mod catalog;
pub mod cluster;
pub mod credentials;
pub mod metrics;
pub mod store;
pub mod supervision;
pub mod traces;

pub mod auth;
pub mod history;
pub mod transport;

pub mod doctor;
pub mod downstream;
pub mod sources;

pub mod publisher;

pub mod calls;

pub mod sessions;

pub mod admin;
pub mod front;

pub mod cli;
pub mod config;

pub mod clients;
pub mod gateway;

pub mod cassette;
pub mod example_server;
