//! The words of `mcpvisor vault`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct VaultArguments {
    #[command(subcommand)]
    pub verb: VaultVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum VaultVerb {
    /// Seal all kept tokens anew with another key, whether a gateway runs or not
    ///
    /// A key in a file is replaced with a new one. A key that the environment or a command gives is
    /// replaced there first, and the old one is named here. Whenever this is interrupted, all of it can
    /// be read; begun again, it goes on.
    Rotate {
        /// The key before, in base64, if the present one has taken its place already
        #[arg(long, value_name = "FILE")]
        old_key_file: Option<PathBuf>,
    },
}
