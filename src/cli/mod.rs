//! The command line: what may be written, nothing of what it does.

mod add;
mod auth;
mod clients;
mod doctor;
mod keys;
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
pub use clients::{ClientArguments, ClientsArguments, ClientsVerb};
pub use doctor::DoctorArguments;
pub use keys::{KeysArguments, KeysVerb, MadeKeyArguments, TokenArguments, UiArguments};
pub use pins::{PinsArguments, PinsVerb};
pub use plan::{ApplyArguments, PlanArguments, RollbackArguments};
pub use policy::{PolicyArguments, PolicyVerb};
pub use records::{GatewayLogArguments, HistoryArguments, Moment, ShownRecords};
pub use servers::{LogsArguments, ServersArguments, ServersVerb};
pub use shell::{BundleArguments, CompletionsArguments, ManArguments};
pub use stdio::{Header, StdioArguments};
pub use tools::{
    CallArguments, ListArguments, NamedArgument, ShowArguments, ToolsArguments, ToolsVerb,
};
pub use vault::{VaultArguments, VaultVerb};

/// A supervised gateway for MCP servers: one endpoint, every server behind it, nothing stays down.
///
/// Without a command it serves. Clients connect to http://127.0.0.1:12006/mcp unless the
/// configuration says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = "mcpvisor", version, max_term_width = 100)]
#[command(after_help = "\
Environment:
  MCPVISOR_LISTEN  address to listen on, as 127.0.0.1:12006; wins over PORT and the file
  PORT, HOST       port, and with it address, to listen on; win over the file
  MCPVISOR_DATA    directory of the gateway's state, unless the file names one
  RUST_LOG         what is logged, as info or mcpvisor=debug")]
pub struct Arguments {
    /// The configuration [default: ./config.toml, else ~/.config/mcpvisor/config.toml, else the
    /// one that is built in; `stdio` takes no ./config.toml]
    #[arg(short, long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,

    /// Serve every client without sessions, as `gateway.stateless` does
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
    /// It reads its configuration again when the file changes and on SIGHUP, and stops on Ctrl-C,
    /// on SIGTERM and when its terminal closes, after the calls in flight.
    Serve,

    /// Serve one client over stdin and stdout
    ///
    /// Runs a whole gateway for it, with the servers of the configuration and without a listener;
    /// any number of these run beside each other and beside a gateway that serves HTTP. With
    /// --connect it starts nothing and relays to a running one.
    Stdio(StdioArguments),

    /// Check the configuration and say what would run
    ///
    /// Ends with 0 if the gateway would start, otherwise with the errors and their place in the
    /// file. Starts nothing.
    Check,

    /// Look for what is wrong: configuration, files, port, programs, URLs, limits, and the gateway that
    /// runs
    ///
    /// Says what to do about each finding. Asks well-known programs for their version and each URL for
    /// one answer, all at the same time. Ends with 1 if there is an error.
    Doctor(DoctorArguments),

    /// Say what would change if a file took the place of the configuration
    ///
    /// Relative paths in it start at the directory of the configuration. Changes nothing.
    Plan(PlanArguments),

    /// Put a file in the place of the configuration, and wait until it is in force
    ///
    /// The file is checked first. What it replaces is kept; if a gateway runs and refuses it, the
    /// old content is put back.
    Apply(ApplyArguments),

    /// Put back what the last `apply` replaced
    ///
    /// A second time it undoes the first. The last five contents are kept beside the configuration.
    Rollback(RollbackArguments),

    /// Print the default configuration, its JSON Schema or its reference, or migrate a file
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },

    /// Show the servers and sessions of the running gateway
    ///
    /// Speaks to the gateway that uses the same configuration, through its data directory; where
    /// there is no configuration, to the only one that runs.
    Status(StatusArguments),

    /// List, stop, start, restart, kill or trip the servers of the running gateway, or show their
    /// logs
    ///
    /// Without a verb it lists them. Speaks to the gateway that uses the same configuration,
    /// through its data directory; where there is no configuration, to the only one that runs.
    Servers(ServersArguments),

    /// List the tools of the running gateway, show one or call one
    ///
    /// Speaks to the gateway as `servers` does, without a key.
    Tools(ToolsArguments),

    /// List the MCP clients of this machine, connect them to the gateway, or take over their servers
    ///
    /// Without a verb it lists them.
    Clients(ClientsArguments),

    /// List, make, replace or remove the API keys of clients
    ///
    /// Without a verb it lists them. They stand in the configuration, as hashes.
    Keys(KeysArguments),

    /// List the pins of tools, show what changed, or approve it
    ///
    /// Without a verb it lists them. Speaks to the gateway as `servers` does.
    Pins(PinsArguments),

    /// Try the policies of the configuration before clients do
    Policy(PolicyArguments),

    /// Sign in to servers that want a login, or out
    Auth(AuthArguments),

    /// Look after the key that kept tokens are sealed with
    Vault(VaultArguments),

    /// Show the token of the HTTP API
    ///
    /// Of the gateway that uses the same configuration, or of the only one that runs; it is made if
    /// there is none yet.
    Token(TokenArguments),

    /// Open the dashboard in a browser
    ///
    /// Prints a link that signs in once, within ten minutes. Speaks to the gateway as `servers`
    /// does.
    Ui(UiArguments),

    /// Show the calls that went through the running gateway
    ///
    /// One line for each call, the last ones, the newest at the end. Speaks to the gateway as
    /// `servers` does.
    History(HistoryArguments),

    /// Show the last lines of the running gateway's own log
    ///
    /// `servers logs NAME` shows what a server wrote. Speaks to the gateway as `servers` does.
    Logs(GatewayLogArguments),

    /// Gather what somebody needs who looks for a fault, in one file without secrets
    ///
    /// The configuration without what may be secret, what `doctor` finds, the status, crash reports
    /// and the last lines of the log of the running gateway, versions. Look through it before you send
    /// it.
    SupportBundle(BundleArguments),

    /// Print the completions of a shell
    ///
    /// For bash: `mcpvisor completions bash > ~/.local/share/bash-completion/completions/mcpvisor`.
    Completions(CompletionsArguments),

    /// Write the man pages to a directory
    Man(ManArguments),

    /// Run the built-in example server over stdin and stdout
    ///
    /// An MCP server with a few tools, resources and prompts to try a client or a gateway with.
    ExampleServer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum ConfigVerb {
    /// Print the default configuration with a comment for every key
    Default,

    /// Print a JSON Schema of the configuration, for editors
    Schema,

    /// Print the reference of all keys in Markdown
    Reference,

    /// Write the configuration in the version that this mcpvisor writes
    ///
    /// Comments and order stay. What it replaces is kept, as with `apply`.
    Migrate,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct StatusArguments {
    /// Write JSON, for programs
    #[arg(long)]
    pub json: bool,

    /// Show it again every second until Ctrl-C
    ///
    /// On a terminal in the place of what is there, which comes back at the end; appended where the
    /// output is no terminal.
    #[arg(short, long)]
    pub watch: bool,
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
    fn the_file_stands_before_or_after_the_command() {
        let status = Command::Status(StatusArguments {
            json: true,
            watch: false,
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
                Some(ClientsVerb::Connect(named(false))),
            ),
            (
                "clients disconnect cursor",
                Some(ClientsVerb::Disconnect(named(false))),
            ),
            (
                "clients import cursor --dry-run",
                Some(ClientsVerb::Import(named(true))),
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
    fn one_client_is_served_alone_or_relayed() {
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
    fn help_and_version_are_there() {
        let help = parse("--help").unwrap_err().to_string();
        for word in [
            "serve",
            "check",
            "status",
            "stdio",
            "example-server",
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
