//! Proof of the guarantees of `mcpvisor::supervision`, one module per kind.

mod deaths;
mod support;
