//! Arguments of `mcpvisor vault`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct VaultArguments {
    #[command(subcommand)]
    pub verb: VaultVerb,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum VaultVerb {
    /// Re-encrypt all stored tokens with a new key; the gateway can keep running
    ///
    /// A key in a file is replaced by a new one. Replace a key from the environment or a command
    /// first, and name the old one here. After an interruption, run it again.
    Rotate {
        /// The old key, in base64, if you have already replaced it
        #[arg(long, value_name = "FILE")]
        old_key_file: Option<PathBuf>,
    },
}
