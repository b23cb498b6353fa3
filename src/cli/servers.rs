//! Arguments of `mcpvisor servers`.

use std::time::Duration;

use clap::{Args, Subcommand, value_parser};

use super::AddArguments;
use super::add::Registry;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServersArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<ServersVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ServersVerb {
    /// List the servers (the default)
    #[command(visible_alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show a server's state and what it offers
    Show { name: String },

    /// Add a server to the configuration
    ///
    /// A running gateway starts it at once.
    Add(Box<AddArguments>),

    /// Search the MCP registry
    ///
    /// Prints the command that adds each server.
    Search(SearchArguments),

    /// Remove a server from the configuration
    #[command(visible_alias = "remove")]
    Rm { name: String },

    /// Start a server now and with the gateway
    Enable { name: String },

    /// Keep a server in the configuration without starting it
    Disable { name: String },

    /// Wait until servers are up
    Wait {
        /// Servers to wait for; all without names
        names: Vec<String>,
        /// How long to wait
        #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
        timeout: Duration,
    },

    /// Restart a server now
    ///
    /// Ends the calls of a healthy server, and tries a waiting one immediately.
    Restart { name: String },

    /// Try another version of a server beside the running one, and keep the better one
    ///
    /// The command must run a package with npx or uvx, or an image with docker or podman. The new
    /// version replaces the old one after it passed the gates of `rollout`, and only then the
    /// configuration names it.
    Upgrade {
        name: String,
        /// The version; the newest one by default, and later starts are then not pinned
        #[arg(long, value_name = "VERSION")]
        to: Option<String>,
    },

    /// Stop a server until it is started
    ///
    /// Its tools stay listed and its calls fail. It also starts when its configuration changes or
    /// the gateway restarts.
    Stop { name: String },

    /// Start a stopped, waiting or idle server now
    Start { name: String },

    /// Kill a server's process to test its restart
    Kill { name: String },

    /// Refuse calls of a server or of one of its tools until `reset`
    ///
    /// Opens the breaker; the server keeps running. TOOL is the server's name for it.
    Trip { name: String, tool: Option<String> },

    /// Print the headers that a server receives, with masked values
    ///
    /// Reads only the configuration.
    Headers { name: String },

    /// Close the breakers of a server and all its tools, or of one tool
    Reset { name: String, tool: Option<String> },

    /// List the crash reports of one or all servers, and show the last one
    ///
    /// They are in `crashes` in the data directory.
    Crashes {
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },

    /// Show a server's last log lines: stderr, stray output and remarks of the gateway
    Logs(LogsArguments),
}

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct SearchArguments {
    /// A part of the servers' names
    pub word: String,

    /// Maximum number of servers
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = value_parser!(u8).range(1..=100))]
    pub limit: u8,

    #[command(flatten)]
    pub registry: Registry,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct LogsArguments {
    pub name: String,

    /// Print JSON
    #[arg(long, conflicts_with = "follow")]
    pub json: bool,

    /// Follow new lines until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,

    /// Show only the last N lines
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
}
