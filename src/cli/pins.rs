//! The words of `mcpvisor pins`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PinsArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<PinsVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PinsVerb {
    /// List the pins, those that need a look first
    #[command(name = "ls")]
    List {
        /// Write JSON, for programs
        #[arg(long)]
        json: bool,
    },

    /// Show how a tool differs from the definition that was approved
    Show {
        server: String,
        /// The name that the server gives it
        tool: String,
        /// Write JSON, for programs
        #[arg(long)]
        json: bool,
    },

    /// Approve a tool as it is listed now, or all tools of a server
    Approve {
        server: String,
        /// The name that the server gives it
        tool: Option<String>,
        /// Approve only the definition with this digest, as `show` names it
        #[arg(long, requires = "tool")]
        digest: Option<String>,
    },
}
