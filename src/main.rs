//! The binary: arguments, configuration, gateway, signals, drain.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use mcpvisor::admin::{
    ControlError, Request, ask, ask_status, crash_text, log_lines, notes, redrawn, server_table,
    tree,
};
use mcpvisor::cli::{
    Arguments, Command, Header, ServersArguments, ServersVerb, StatusArguments, StdioArguments,
};
use mcpvisor::config::watch::{Watch, WatchSettings};
use mcpvisor::config::{Config, ConfigError, LogFormat, ProcessEnvironment, describe, fill_in};
use mcpvisor::front::{Relay, RelaySettings};
use mcpvisor::gateway::service::{self, Tell};
use mcpvisor::gateway::{Gateway, known_notices};
use mcpvisor::{example_server, telemetry, transport};
use secrecy::SecretString;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let path = arguments.config.as_deref();
    match arguments.verb() {
        Command::Serve => finish(serve(path, Way::Http, arguments.stateless)),
        Command::Stdio(StdioArguments {
            connect: Some(url),
            headers,
        }) => finish(relay(url, headers)),
        Command::Stdio(_) => finish(serve(path, Way::Stdio, arguments.stateless)),
        Command::Check => finish(check(path)),
        Command::Status(status) => finish(show_status(path, &status)),
        Command::Servers(servers) => finish(operate(path, servers)),
        Command::ExampleServer => finish(run_example_server()),
    }
}

/// What went wrong, told on stderr.
type Failed = Box<dyn std::error::Error>;

fn finish(outcome: Result<(), Failed>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// How clients reach the gateway.
#[derive(Clone, Copy)]
enum Way {
    Http,
    /// One client, over stdin and stdout.
    Stdio,
}

fn serve(path: Option<&Path>, way: Way, stateless: bool) -> Result<(), Failed> {
    // First of all: there are no threads yet.
    let inherited = match way {
        Way::Http => service::inherited_listener()?,
        Way::Stdio => None,
    };
    transport::install_crypto_provider();
    let mut environment = ProcessEnvironment::new();
    if let Some(listener) = &inherited {
        environment.listens_on(listener.local_addr()?);
    }
    let load = |path: Option<&Path>| {
        let mut loaded = Config::load(path, &environment)?;
        loaded.config.front.stateless |= stateless;
        Ok::<_, ConfigError>(loaded)
    };
    let loaded = load(path)?;
    telemetry::init_logging(match loaded.config.log {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    });
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
    actix::System::new().block_on(async {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let watched = loaded.path.clone();
        let watch = watched
            .as_deref()
            .map(|path| Watch::start(path, loaded.fingerprint, &WatchSettings::default()));
        let (_watch, mut changes) = watch.unzip();
        let mut gateway = match way {
            Way::Http => Gateway::start(loaded, inherited).await?,
            Way::Stdio => Gateway::start_for_stdio(loaded).await?,
        };
        let client = match way {
            Way::Http => None,
            Way::Stdio => Some(gateway.serve_stdio()?),
        };
        let left = async {
            match client {
                Some(client) => client.await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(left);
        service::tell(Tell::Ready(&gateway.summary()));
        loop {
            let changed = async {
                match &mut changes {
                    Some(changes) => changes.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(_) = changed => {}
                Some(()) = hangup.recv() => log::info!("SIGHUP: configuration is read again"),
                _ = terminate.recv() => break,
                _ = tokio::signal::ctrl_c() => break,
                () = &mut left => break,
            }
            service::tell(Tell::Reloading);
            gateway.reload(load(watched.as_deref().or(path)));
            service::tell(Tell::Ready(&gateway.summary()));
        }
        service::tell(Tell::Stopping);
        tokio::select! {
            () = gateway.stop() => Ok(()),
            _ = terminate.recv() => Err("stopped at once, as it was told twice".into()),
            _ = tokio::signal::ctrl_c() => Err("stopped at once, as it was told twice".into()),
        }
    })
}

/// Relays one client over stdin and stdout to a server elsewhere.
fn relay(url: Url, headers: Vec<Header>) -> Result<(), Failed> {
    transport::install_crypto_provider();
    telemetry::init_logging(!std::io::stderr().is_terminal());
    let environment = ProcessEnvironment::new();
    let headers: Result<Vec<_>, String> = headers
        .into_iter()
        .map(|Header { name, value }| {
            let filled_in = fill_in(&value, &environment);
            let value = filled_in.map_err(|why| format!("header `{name}`: {why}"))?;
            Ok((name, SecretString::from(value)))
        })
        .collect();
    let settings = RelaySettings::new(url, headers?);
    actix::System::new().block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let stopped = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        Ok(Relay::run(settings, stopped).await?)
    })
}

fn check(path: Option<&Path>) -> Result<(), Failed> {
    let loaded = Config::load(path, &ProcessEnvironment::new())?;
    print(&(describe(&loaded) + "\n"))?;
    // Which names are cut is known to a gateway that runs, and from the lists that one kept.
    one_thread()?.block_on(async {
        if let Ok(status) = ask_status(&loaded.config.data_dir).await {
            return print(&notes(&status));
        }
        match known_notices(&loaded.config).await {
            Some(notices) => print(&notes(&serde_json::json!({ "notices": notices }))),
            None => print("names          not known: no gateway has listed these servers yet\n"),
        }
    })
}

/// How often a watched status is shown.
const WATCH_EVERY: Duration = Duration::from_secs(1);

fn show_status(path: Option<&Path>, arguments: &StatusArguments) -> Result<(), Failed> {
    let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
    let shown = |status: &Value| {
        if arguments.json {
            pretty(status)
        } else {
            Ok(tree(status))
        }
    };
    one_thread()?.block_on(async {
        if !arguments.watch {
            return print(&shown(&ask_status(&data_dir).await?)?);
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        // The first answer tells whether there is anything to watch.
        let mut status = Ok(ask_status(&data_dir).await?);
        loop {
            let text = match &status {
                Ok(status) => shown(status)?,
                Err(error) => format!("{error}\n"),
            };
            let is_terminal = std::io::stdout().is_terminal();
            print(&if is_terminal { redrawn(&text) } else { text })?;
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                _ = interrupt.recv() => return Ok(()),
            }
            status = ask_status(&data_dir).await;
        }
    })
}

fn operate(path: Option<&Path>, arguments: ServersArguments) -> Result<(), Failed> {
    let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
    let ask = |request| -> Result<Value, Failed> {
        let asked: Result<Value, ControlError> =
            one_thread()?.block_on(async { ask(&data_dir, &request).await });
        Ok(asked?)
    };
    let request = match arguments.verb {
        None => {
            let status = &ask(Request::Status)?["status"];
            return print(&if arguments.json {
                pretty(&status["servers"])?
            } else {
                server_table(status)
            });
        }
        Some(ServersVerb::Logs { name, json }) => {
            let lines = &ask(Request::Logs { server: name })?["logs"];
            return print(&if json {
                pretty(lines)?
            } else {
                log_lines(lines)
            });
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = &ask(Request::Crashes { server: name })?;
            return print(&if json {
                pretty(crashes)?
            } else {
                crash_text(crashes)
            });
        }
        Some(ServersVerb::Restart { name }) => Request::Restart { server: name },
        Some(ServersVerb::Stop { name }) => Request::Stop { server: name },
        Some(ServersVerb::Start { name }) => Request::Start { server: name },
        Some(ServersVerb::Trip { name, tool }) => Request::Trip { server: name, tool },
        Some(ServersVerb::Reset { name, tool }) => Request::Reset { server: name, tool },
    };
    let done = ask(request)?;
    print(&format!("{}\n", done["done"].as_str().unwrap_or("done")))
}

/// For commands that run on one thread.
fn one_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn pretty(value: &Value) -> Result<String, Failed> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn run_example_server() -> Result<(), Failed> {
    let runtime = one_thread()?;
    let outcome = runtime.block_on(example_server::run());
    // A thread that still reads stdin would hold the process.
    runtime.shutdown_background();
    Ok(outcome?)
}

fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
