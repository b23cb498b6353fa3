//! Client ends against real peers: child processes, HTTP servers.

mod stdio;
mod stdio_end;
mod support;
