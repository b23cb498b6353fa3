//! Arguments of `mcpvisor record` and `mcpvisor replay`.

use std::path::PathBuf;

use clap::Args;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct RecordArguments {
    /// Server whose calls are recorded
    #[arg(value_name = "NAME")]
    pub server: String,

    /// File to write
    pub file: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ReplayArguments {
    /// File that `mcpvisor record` wrote
    pub file: PathBuf,

    /// Answer a request without an equal recorded one like another one for the same tool, prompt or
    /// resource
    #[arg(long)]
    pub loose: bool,
}
