//! Arguments of `mcpvisor notices`.

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct NoticesArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<NoticesVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum NoticesVerb {
    /// List the notices with their ids
    #[command(name = "ls", visible_alias = "list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Hide notices from the status and the dashboard for 90 days, or until their text changes
    Dismiss {
        /// Ids as printed by `ls`
        #[arg(required = true)]
        ids: Vec<String>,
    },

    /// Show dismissed notices again
    Restore {
        /// Ids as printed by `ls`
        #[arg(required = true)]
        ids: Vec<String>,
    },
}
