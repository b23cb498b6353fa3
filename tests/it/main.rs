//! The real binary, as its users meet it: over HTTP, through its configuration and its commands.
//! One module for each part of what it promises, one story for each test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod api;
mod attacks;
mod audit;
mod auth;
mod authorization;
mod away_lists;
mod batches;
mod bound_tokens;
mod canaries;
mod cassette;
mod cli;
mod client_limits;
mod clients;
mod crowds;
mod dashboard;
mod dependencies;
mod discovery;
mod doctor;
mod exchange;
mod extensions;
mod forwarding;
mod handshake;
mod history;
mod http_requests;
mod http_servers;
mod includes;
mod kills;
mod large_answers;
mod lazy;
mod lazy_auth;
mod legacy_sse;
mod legacy_sse_resumption;
mod limits;
mod logins;
mod machine;
mod malformed_messages;
mod metrics;
mod notices;
mod odd_authorities;
mod one_server;
mod operating;
mod own_sessions;
mod picture;
mod pins;
mod plans;
mod policy;
mod previews;
mod probes;
mod processes;
mod prompts_and_resources;
mod questions;
mod quick_start;
mod rate_limits;
mod relay;
mod reload;
mod resumption;
mod retries;
mod rollouts;
#[cfg(target_os = "linux")]
mod sandbox;
mod sandbox_default;
mod sdk;
mod secrecy;
mod server_cards;
mod server_faults;
mod servers_add;
mod service;
mod session_credentials;
mod sessionless;
mod shell;
mod sign_in_pages;
mod skills;
mod slow_peers;
mod sources;
mod starts;
mod stdio;
mod stopping;
mod supervision;
mod support;
mod support_bundle;
mod survival;
mod tasks;
mod tls;
mod tls_peers;
mod tls_rotation;
mod token_answers;
mod tokens;
mod tool_commands;
mod tools;
mod tree;
mod unix_sockets;
mod user_headers;
mod user_sign_ins;
mod users;
mod vault;
mod views;
mod web_pages;
