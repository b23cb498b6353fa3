//! Arguments of `mcpvisor pins`.

use clap::{Args, Subcommand};

use crate::catalog::PinKind;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PinsArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<PinsVerb>,
}

/// The kind of item that a name refers to.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct PinOf {
    /// Kind of item: tool, prompt, resource, template, skill or instructions
    #[arg(long, default_value = "tool", value_parser = pin_kind)]
    pub kind: PinKind,
}

fn pin_kind(name: &str) -> Result<PinKind, String> {
    let known = PinKind::ALL.map(PinKind::as_str).join(", ");
    PinKind::named(name).ok_or_else(|| format!("known kinds are {known}"))
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum PinsVerb {
    /// List the pins; items that need review come first
    #[command(name = "ls", visible_alias = "list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show how an item differs from its approved definition
    Show {
        server: String,
        /// Name or URI that the server gives the item
        name: String,
        #[command(flatten)]
        of: PinOf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Approve an item as it is listed now, or everything that a server lists
    Approve {
        server: String,
        /// Name or URI that the server gives the item
        name: Option<String>,
        #[command(flatten)]
        of: PinOf,
        /// Approve only the definition with this digest, as printed by `show`
        #[arg(long, requires = "name")]
        digest: Option<String>,
    },
}
