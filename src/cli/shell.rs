//! The words of `mcpvisor completions`, `man` and `support-bundle`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct CompletionsArguments {
    pub shell: Shell,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ManArguments {
    /// Where they are written; it is made if it is not there
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct BundleArguments {
    /// The file to write [default: mcpvisor-support-TIME.tar.gz]
    #[arg(value_name = "FILE.tar.gz")]
    pub file: Option<PathBuf>,
}
