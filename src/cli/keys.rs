//! The words of `mcpvisor keys` and `mcpvisor token`.

use std::time::Duration;

use clap::{Args, Subcommand};

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct KeysArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<KeysVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum KeysVerb {
    /// List the keys of the configuration
    #[command(name = "ls")]
    List {
        /// Write JSON, for programs
        #[arg(long)]
        json: bool,
    },

    /// Make a key and print it, once: the configuration keeps its hash only
    ///
    /// With a first key, clients without one are refused. A running gateway takes it at once,
    /// unless `gateway.watch` is off.
    Add {
        #[command(flatten)]
        made: MadeKeyArguments,

        /// A scope of it, as mcpvisor:admin; may be said several times
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
    },

    /// Make another key in the place of one, and print it: the old one is refused from then on
    Rotate(MadeKeyArguments),

    /// Remove a key: it is refused from then on
    Rm { name: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct MadeKeyArguments {
    pub name: String,

    /// It is refused after so long, as 90d or 12h
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub expires_in: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct TokenArguments {
    /// Replace it: from now on the old one is refused
    #[arg(long)]
    pub rotate: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct UiArguments {
    /// Print the link only
    #[arg(long)]
    pub no_browser: bool,
}
