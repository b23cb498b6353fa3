//! The words of `mcpvisor clients`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ClientsArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<ClientsVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ClientsVerb {
    /// Write the gateway into the file of a client
    ///
    /// Everything else in the file stays as it is, comments too; a copy of it as it was is kept
    /// beside it.
    Connect(ClientArguments),

    /// Take the gateway out of the file of a client
    Disconnect(ClientArguments),

    /// Add the servers of a client to the configuration of the gateway
    ///
    /// Servers whose name the configuration has are left out. A running gateway starts the new ones
    /// at once. The client keeps its own until you take them out there.
    Import(ClientArguments),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ClientArguments {
    /// Its name, as `mcpvisor clients` lists it
    pub client: String,

    /// Say what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
}
