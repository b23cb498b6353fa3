//! Client ends against real peers: child processes, HTTP servers.

mod http;
mod http_peer;
mod stdio;
mod stdio_end;
mod support;
