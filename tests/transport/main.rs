//! Client ends against real peers: child processes, HTTP servers.

mod http;
mod http_peer;
mod http_raw;
mod http_stream;
mod stdio;
mod stdio_end;
mod support;
