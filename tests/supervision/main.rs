//! Proof of the guarantees of `mcpvisor::supervision`, one module per kind.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "in a test that is the answer"
)]

mod deaths;
mod memory;
mod stopping;
mod storm;
mod support;
mod temporary;
mod time;
mod waiting;
