//! Arguments of `mcpvisor clients`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ClientsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<ClientsVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ClientsVerb {
    /// Add the gateway to a client's configuration file
    ///
    /// Keeps comments, and a backup beside the file.
    Connect(ClientArguments),

    /// Remove the gateway from a client's configuration file
    Disconnect(ClientArguments),

    /// Add a client's servers to the gateway's configuration
    ///
    /// Skips servers whose name is taken. The client keeps its own entries.
    Import(ClientArguments),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ClientArguments {
    /// Name as listed by `mcpvisor clients`
    pub client: String,

    /// Only print what would be written
    #[arg(long)]
    pub dry_run: bool,
}
