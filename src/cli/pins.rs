//! The words of `mcpvisor pins`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PinsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<PinsVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PinsVerb {
    /// List the pins, those that need review first
    #[command(name = "ls")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show how a tool differs from its approved definition
    Show {
        server: String,
        /// Name that the server gives the tool
        tool: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Approve a tool as it is listed now, or all tools of a server
    Approve {
        server: String,
        /// Name that the server gives the tool
        tool: Option<String>,
        /// Approve only the definition with this digest, as printed by `show`
        #[arg(long, requires = "tool")]
        digest: Option<String>,
    },
}
