//! The gateway between other implementations: the official TypeScript SDK, the official conformance
//! framework, scripted peers of every revision, and peers that die. Some need Node with npm.

mod chaos;
mod conformance;
mod interop;
mod node;
mod pairs;

#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests in `it`")]
#[expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]
mod support;
