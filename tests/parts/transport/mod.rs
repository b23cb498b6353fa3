//! Client ends against real peers: child processes, HTTP servers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod http;
mod http_peer;
mod http_raw;
mod http_refusals;
mod http_sessionless;
mod http_sse;
mod http_stream;
mod http_wire;
mod proxy;
mod redirects;
mod stdio;
mod stdio_end;
mod stdio_limits;
mod support;
mod tls;
mod unix_socket;
