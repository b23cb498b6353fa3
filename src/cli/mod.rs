//! The command line: defines the arguments, not what the commands do.

mod add;
mod auth;
mod cassette;
mod clients;
mod config;
mod doctor;
mod keys;
mod notices;
mod pins;
mod plan;
mod policy;
mod records;
mod servers;
mod shell;
mod stdio;
mod tools;
mod vault;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use add::{AddArguments, Setting};
pub use auth::{AuthArguments, AuthVerb, LoginArguments};
pub use cassette::{RecordArguments, ReplayArguments};
pub use clients::{
    ClientArguments, ClientsArguments, ClientsVerb, ConnectArguments, ImportArguments,
};
pub use config::ConfigVerb;
pub use doctor::DoctorArguments;
pub use keys::{KeysArguments, KeysVerb, MadeKeyArguments, TokenArguments, UiArguments};
pub use notices::{NoticesArguments, NoticesVerb};
pub use pins::{PinsArguments, PinsVerb};
pub use plan::{ApplyArguments, PlanArguments, RollbackArguments};
pub use policy::{PolicyArguments, PolicyVerb};
pub use records::{GatewayLogArguments, HistoryArguments, Moment, ShownRecords};
pub use servers::{LogsArguments, SearchArguments, ServersArguments, ServersVerb};
pub use shell::{BundleArguments, CompletionsArguments, ManArguments};
pub use stdio::{Header, StdioArguments};
pub use tools::{
    CallArguments, ListArguments, NamedArgument, ShowArguments, ToolOfServer, ToolsArguments,
    ToolsVerb,
};
pub use vault::{VaultArguments, VaultVerb};

/// A supervised gateway for MCP servers: one endpoint, every server behind it, crashed servers
/// restart.
///
/// Without a command it serves. Clients connect to http://127.0.0.1:12006/mcp by default.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "mcpvisor", version, max_term_width = 100)]
#[command(after_help = "\
Environment:
  MCPVISOR_LISTEN         address to listen on, such as 127.0.0.1:12006; overrides PORT and the file
  PORT, HOST              port and, with PORT, address to listen on; override the file
  MCPVISOR_DATA           directory of the gateway's state, unless the file names one
  MCPVISOR_SANDBOX_LEVEL  off, standard or strict, unless the file names the level of the sandbox
  RUST_LOG                log filter, such as info or mcpvisor=debug")]
pub struct Arguments {
    /// Configuration file [default: ./config.toml (not for `stdio`), then
    /// ~/.config/mcpvisor/config.toml, then built-in defaults]
    #[arg(short, long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Serve all clients without sessions, like `gateway.stateless`
    #[arg(long, global = true)]
    pub stateless: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

impl Arguments {
    /// The command; without one, the gateway serves.
    pub fn verb(&self) -> Command {
        self.command.clone().unwrap_or(Command::Serve)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Run the gateway (the default)
    ///
    /// Stops on Ctrl-C, on SIGTERM and when its terminal closes, after the calls in flight.
    Serve,

    /// Serve one client over stdin and stdout
    ///
    /// Runs a gateway of its own without a listener; several can run in parallel. With --connect it
    /// starts no servers and relays to a running gateway.
    Stdio(StdioArguments),

    /// Validate the configuration and show what would run
    ///
    /// Exits with 0 if the gateway would start. Starts nothing.
    Check,

    /// Find problems with the configuration, machine, servers and running gateway
    ///
    /// Runs well-known programs with --version and sends each URL one request. Exits with 1 if
    /// there is an error.
    Doctor(DoctorArguments),

    /// Show what would change if FILE replaced the configuration
    ///
    /// Relative paths in it start at the directory of the configuration. Changes nothing.
    Plan(PlanArguments),

    /// Replace the configuration with FILE, and wait until it is active
    ///
    /// Keeps the previous content, and restores it if a running gateway refuses the new one.
    Apply(ApplyArguments),

    /// Undo the last `apply`
    ///
    /// A second rollback redoes it. The last five versions are kept.
    Rollback(RollbackArguments),

    /// Print the default configuration, its JSON Schema or its reference, or migrate a file
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },

    /// Show the servers and sessions of the running gateway
    ///
    /// Finds the gateway by its configuration; without one, the only running gateway.
    Status(StatusArguments),

    /// Tell what happens next to a server of the running gateway and why, and what its program can reach
    Explain {
        /// Name of the server
        name: String,
    },

    /// List, stop, start, restart, kill or trip the servers of the running gateway, or show their
    /// logs
    ///
    /// Lists them by default.
    Servers(ServersArguments),

    /// List the tools of the running gateway, show one or call one
    ///
    /// Needs no key.
    Tools(ToolsArguments),

    /// List the MCP clients of this machine, connect them to the gateway, or import their servers
    ///
    /// Lists them by default.
    Clients(ClientsArguments),

    /// List, create, replace or remove the API keys of clients
    ///
    /// Lists them by default.
    Keys(KeysArguments),

    /// List what is pinned of servers, show what changed, or approve it
    ///
    /// Lists them by default.
    Pins(PinsArguments),

    /// List, dismiss or restore the notices of the running gateway
    ///
    /// Lists them by default.
    Notices(NoticesArguments),

    /// Test the policies of the configuration
    Policy(PolicyArguments),

    /// Sign in to servers that require a login, or sign out
    Auth(AuthArguments),

    /// Manage the key that encrypts stored tokens
    Vault(VaultArguments),

    /// Show the token of the HTTP API
    ///
    /// Creates the token if there is none.
    Token(TokenArguments),

    /// Open the dashboard in a browser
    ///
    /// Prints a link that works once, for ten minutes.
    Ui(UiArguments),

    /// Show the last calls through the running gateway
    ///
    /// One line per call, the newest last.
    History(HistoryArguments),

    /// Show the last lines of the running gateway's own log
    ///
    /// `servers logs NAME` shows a server's output.
    Logs(GatewayLogArguments),

    /// Record the lists and last calls of a server in a file
    ///
    /// Reads the calls from the history of the running gateway, without secrets.
    Record(RecordArguments),

    /// Serve a recorded server over stdin and stdout
    ///
    /// Write `command = "mcpvisor"` and `args = ["replay", "FILE"]` in a configuration, for tests
    /// of an agent without the real server.
    Replay(ReplayArguments),

    /// Collect diagnostics for a bug report in one file, without secrets
    ///
    /// It contains the masked configuration, the findings of `doctor`, and the status, crash
    /// reports and last log lines of the running gateway. Review it before you send it.
    SupportBundle(BundleArguments),

    /// Print shell completions
    ///
    /// For bash: `mcpvisor completions bash > ~/.local/share/bash-completion/completions/mcpvisor`.
    Completions(CompletionsArguments),

    /// Write the man pages to a directory
    Man(ManArguments),

    /// Print the version
    Version,

    /// Run the built-in example server over stdin and stdout
    ExampleServer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct StatusArguments {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Update every second until Ctrl-C
    ///
    /// Redraws a terminal and restores it at the end; appends if the output is not a terminal.
    #[arg(short, long)]
    pub watch: bool,

    /// Include the gateway's own actors
    #[arg(short, long)]
    pub all: bool,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(arguments: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(format!("mcpvisor {arguments}").split_whitespace())
    }

    #[test]
    fn the_definition_is_sound() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn the_config_option_is_accepted_before_and_after_the_command() {
        let status = Command::Status(StatusArguments {
            json: true,
            ..StatusArguments::default()
        });
        let cases = [
            ("", None, Command::Serve),
            ("--config a.toml", Some("a.toml"), Command::Serve),
            ("-c a.toml serve", Some("a.toml"), Command::Serve),
            ("serve --config a.toml", Some("a.toml"), Command::Serve),
            ("check --config=a.toml", Some("a.toml"), Command::Check),
            (
                "--config a.toml status --json",
                Some("a.toml"),
                status.clone(),
            ),
            ("status --json --config a.toml", Some("a.toml"), status),
            ("status", None, Command::Status(StatusArguments::default())),
            ("example-server", None, Command::ExampleServer),
            ("version", None, Command::Version),
            (
                "token --rotate",
                None,
                Command::Token(TokenArguments { rotate: true }),
            ),
            (
                "config schema",
                None,
                Command::Config {
                    verb: ConfigVerb::Schema,
                },
            ),
        ];
        for (text, config, command) in cases {
            let arguments = parse(text).unwrap();
            assert_eq!(arguments.config.as_deref(), config.map(Path::new), "{text}");
            assert_eq!(arguments.verb(), command, "{text}");
        }
    }

    #[test]
    fn servers_are_listed_unless_a_verb_follows() {
        let name = || "files".to_owned();
        let logs = |json| {
            ServersVerb::Logs(LogsArguments {
                name: name(),
                json,
                ..LogsArguments::default()
            })
        };
        let crashes = |name, json| Some(ServersVerb::Crashes { name, json });
        let cases = [
            ("servers", false, None),
            ("servers --json", true, None),
            (
                "servers stop files",
                false,
                Some(ServersVerb::Stop { name: name() }),
            ),
            (
                "servers start files",
                false,
                Some(ServersVerb::Start { name: name() }),
            ),
            (
                "servers restart files",
                false,
                Some(ServersVerb::Restart { name: name() }),
            ),
            (
                "servers trip files rm",
                false,
                Some(ServersVerb::Trip {
                    name: name(),
                    tool: Some("rm".to_owned()),
                }),
            ),
            (
                "servers reset files",
                false,
                Some(ServersVerb::Reset {
                    name: name(),
                    tool: None,
                }),
            ),
            (
                "servers headers docs",
                false,
                Some(ServersVerb::Headers {
                    name: "docs".to_owned(),
                }),
            ),
            ("servers crashes", false, crashes(None, false)),
            (
                "servers crashes files --json",
                false,
                crashes(Some(name()), true),
            ),
            (
                "servers kill files",
                false,
                Some(ServersVerb::Kill { name: name() }),
            ),
            ("servers logs files", false, Some(logs(false))),
            ("-c a servers logs --json files", false, Some(logs(true))),
            ("servers logs files --json -c a", false, Some(logs(true))),
        ];
        for (text, json, verb) in cases {
            let expected = Command::Servers(ServersArguments { json, verb });
            assert_eq!(parse(text).unwrap().verb(), expected, "{text}");
        }
    }

    #[test]
    fn clients_are_listed_unless_a_verb_follows() {
        let named = |dry_run| ClientArguments {
            client: "cursor".to_owned(),
            dry_run,
        };
        let cases = [
            ("clients", None),
            (
                "clients connect cursor",
                Some(ClientsVerb::Connect(ConnectArguments {
                    named: named(false),
                    view: None,
                    moves: false,
                })),
            ),
            (
                "clients disconnect cursor",
                Some(ClientsVerb::Disconnect(named(false))),
            ),
            (
                "clients import cursor --dry-run",
                Some(ClientsVerb::Import(ImportArguments {
                    named: named(true),
                    project: None,
                })),
            ),
        ];
        for (text, verb) in cases {
            let expected = Command::Clients(ClientsArguments { json: false, verb });
            assert_eq!(parse(text).unwrap().verb(), expected, "{text}");
        }
    }

    #[test]
    fn logs_are_followed_from_the_last_lines_on() {
        let logs = ServersVerb::Logs(LogsArguments {
            name: "files".to_owned(),
            json: false,
            follow: true,
            lines: Some(20),
        });
        let expected = Command::Servers(ServersArguments {
            json: false,
            verb: Some(logs),
        });
        let parsed = parse("servers logs files -f -n 20").unwrap();
        assert_eq!(parsed.verb(), expected);
    }

    #[test]
    fn stdio_serves_a_client_or_relays() {
        let alone = StdioArguments::default();
        assert_eq!(parse("stdio").unwrap().verb(), Command::Stdio(alone));
        let relayed = StdioArguments {
            connect: Some("http://127.0.0.1:1/mcp".parse().unwrap()),
            headers: vec![Header {
                name: "Authorization".to_owned(),
                value: "${TOKEN}:x".to_owned(),
            }],
            ..StdioArguments::default()
        };
        let text = "stdio --connect http://127.0.0.1:1/mcp --header Authorization:${TOKEN}:x";
        assert_eq!(parse(text).unwrap().verb(), Command::Stdio(relayed));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        let refused = [
            "stdio http://127.0.0.1:1/mcp",
            "stdio --connect nowhere",
            "stdio --connect http://a --view b",
            "stdio --view server/a.b",
            "stdio --server a.b",
            "stdio --server a --view b",
            "stdio --server a --connect http://a",
            "stdio --header A:b",
            "token new",
            "stdio --connect http://a --header A",
            "stdio --connect http://a --header :b",
            "start",
            "--json",
            "serve --json",
            "--config",
            "check extra",
            "config",
            "config print",
            "servers stop",
            "servers files",
            "servers stop files --json",
            "servers stop a b",
            "servers kill",
            "servers logs files -n x",
            "servers logs files --follow --json",
            "clients connect",
            "clients cursor",
            "history --follow --json",
            "history --replay 1 --json",
            "logs files",
        ];
        for text in refused {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn help_and_version_are_available() {
        let help = parse("--help").unwrap_err().to_string();
        for word in [
            "serve",
            "check",
            "status",
            "stdio",
            "--config",
            "MCPVISOR_LISTEN",
        ] {
            assert!(help.contains(word), "{word}");
        }
        let version = parse("--version").unwrap_err().to_string();
        assert_eq!(
            version.trim(),
            concat!("mcpvisor ", env!("CARGO_PKG_VERSION"))
        );
    }
}
