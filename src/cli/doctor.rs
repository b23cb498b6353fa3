//! The words of `mcpvisor doctor`.

use clap::Args;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct DoctorArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,
}
