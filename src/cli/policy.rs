//! Arguments of `mcpvisor policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PolicyArguments {
    #[command(subcommand)]
    pub verb: PolicyVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PolicyVerb {
    /// Check the policies against test cases, and show which policy decides each
    ///
    /// Exits with 1 if a decision differs from the file.
    Test {
        /// Test cases in TOML; see docs/policy.md
        file: PathBuf,
    },
}
