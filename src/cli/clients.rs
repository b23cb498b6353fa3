//! Arguments of `mcpvisor clients`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::stdio::view;
use crate::id::ViewId;

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
    /// List the clients (the default)
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Add the gateway to a client's configuration file
    ///
    /// Keeps comments, and a backup beside the file. If the gateway has keys, the client gets one.
    Connect(ConnectArguments),

    /// Remove the gateway from a client's configuration file
    ///
    /// Restores servers that `connect --move` moved, and removes the client's key.
    #[command(visible_aliases = ["rm", "remove"])]
    Disconnect(ClientArguments),

    /// Add a client's servers to the gateway's configuration
    ///
    /// Skips servers whose name is taken. The client keeps its own entries.
    Import(ImportArguments),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ClientArguments {
    /// Name as listed by `mcpvisor clients`
    pub client: String,

    /// Only print what would be written
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ConnectArguments {
    #[command(flatten)]
    pub named: ClientArguments,

    /// View that the client gets, or with `server/NAME` one server
    #[arg(long, value_name = "NAME", value_parser = view)]
    pub view: Option<ViewId>,

    /// Import the client's servers, and remove those that can start from its file
    #[arg(long = "move")]
    pub moves: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct ImportArguments {
    #[command(flatten)]
    pub named: ClientArguments,

    /// Import the servers of the project in this folder instead of the user's
    #[arg(long, value_name = "FOLDER")]
    pub project: Option<PathBuf>,
}
