//! Arguments of `mcpvisor plan`, `apply` and `rollback`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PlanArguments {
    /// File that would replace the configuration
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ApplyArguments {
    /// File that replaces the configuration
    pub file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RollbackArguments {
    /// Show the kept versions, newest first
    #[arg(long)]
    pub list: bool,
}
