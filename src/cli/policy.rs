//! The words of `mcpvisor policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PolicyArguments {
    #[command(subcommand)]
    pub verb: PolicyVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PolicyVerb {
    /// Try the policies of the configuration with cases, and say which policy decides each
    ///
    /// Ends with 1 if a case is decided otherwise than the file says. Starts nothing, and asks no
    /// gateway that runs.
    Test {
        /// The cases, in TOML: docs/policy.md says how
        file: PathBuf,
    },
}
