//! The words of `mcpvisor servers`.

use clap::{Args, Subcommand};

use super::add::AddArguments;

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServersArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,

    #[command(subcommand)]
    pub verb: Option<ServersVerb>,
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum ServersVerb {
    /// Add a server to the configuration
    Add(AddArguments),

    /// Connect a server anew, now
    ///
    /// A healthy one is renewed, which ends its calls; one that waits for its next attempt is
    /// tried at once.
    Restart { name: String },

    /// Take a server out of service until it is started
    ///
    /// Its tools stay listed and its calls fail. It stays stopped when the configuration is read
    /// again, unless its own part changed; the next start of the gateway starts it.
    Stop { name: String },

    /// Put a stopped server in service again
    ///
    /// One that waits for its next attempt, or is idle, is started now.
    Start { name: String },

    /// Kill the process of a server, to see it come back
    ///
    /// As if it had crashed: its calls fail, a report is written, and its supervisor starts it
    /// again.
    Kill { name: String },

    /// Refuse the calls of a server, or of one tool of it, until they are reset
    ///
    /// Opens its breaker. The server keeps running and its tools stay listed; TOOL is the name
    /// that the server gives it.
    Trip { name: String, tool: Option<String> },

    /// Let calls through again to a server and all its tools, or to one tool of it
    ///
    /// Closes breakers that opened by themselves too.
    Reset { name: String, tool: Option<String> },

    /// List the crash reports of a server, or of all, and show the last one
    ///
    /// Says how each connection ended that ended as it should not. Written by the gateway as JSON
    /// files to `crashes` in its data directory.
    Crashes {
        name: Option<String>,
        /// Write JSON, for programs
        #[arg(long)]
        json: bool,
    },

    /// Show the last lines of a server: its stderr, stray output, remarks of the gateway
    Logs(LogsArguments),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct LogsArguments {
    pub name: String,

    /// Write JSON, for programs
    #[arg(long, conflicts_with = "follow")]
    pub json: bool,

    /// Go on with new lines until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,

    /// Show the last N lines only
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<usize>,
}
