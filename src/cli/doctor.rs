//! Arguments of `mcpvisor doctor`.

use clap::Args;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct DoctorArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
