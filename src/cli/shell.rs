//! Arguments of `mcpvisor completions`, `man` and `support-bundle`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CompletionsArguments {
    pub shell: Shell,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ManArguments {
    /// Directory to write to; created if missing
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct BundleArguments {
    /// File to write [default: mcpvisor-support-TIME.tar.gz]
    #[arg(value_name = "FILE.tar.gz")]
    pub file: Option<PathBuf>,
}
