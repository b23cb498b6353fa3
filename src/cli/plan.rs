//! The words of `mcpvisor plan`, `apply` and `rollback`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PlanArguments {
    /// The file that would take the place of the configuration
    pub file: PathBuf,

    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ApplyArguments {
    /// The file whose content takes the place of the configuration
    pub file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RollbackArguments {
    /// Show what is kept, the newest first
    #[arg(long)]
    pub list: bool,
}
