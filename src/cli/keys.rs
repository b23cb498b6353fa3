//! Arguments of `mcpvisor keys` and `mcpvisor token`.

use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct KeysArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<KeysVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum KeysVerb {
    /// List the keys of the configuration
    #[command(name = "ls", visible_alias = "list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Create a key and print it once
    ///
    /// Once there is a key, clients without one are refused.
    Add {
        #[command(flatten)]
        made: MadeKeyArguments,

        /// A scope of the key, such as mcpvisor:admin; can be repeated
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },

    /// Replace a key and print the new one; the old one is refused immediately
    Rotate(MadeKeyArguments),

    /// Remove a key; it is refused immediately
    #[command(visible_alias = "remove")]
    Rm { name: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct MadeKeyArguments {
    pub name: String,

    /// Time until it expires, such as 90d or 12h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub expires_in: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct TokenArguments {
    /// Replace the token; the old one is refused immediately
    #[arg(long)]
    pub rotate: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct UiArguments {
    /// Only print the link
    #[arg(long)]
    pub no_browser: bool,
}
