//! The binary: arguments, configuration, gateway, signals, drain.

use std::io::{IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use mcpvisor::admin::{
    ControlError, ControlRequest, ask, ask_status, crash_text, log_lines, notice_lines, redraw,
    server_table, tree,
};
use mcpvisor::cli::{
    Arguments, Command, ConfigVerb, Header, ServersArguments, ServersVerb, StatusArguments,
    StdioArguments,
};
use mcpvisor::config::watch::{Watch, WatchSettings};
use mcpvisor::config::{
    Config, ConfigError, Loaded, LogFormat, ProcessEnvironment, default_file, describe, fill_in,
    reference, schema, unable_servers,
};
use mcpvisor::front::{Relay, RelaySettings};
use mcpvisor::gateway::service::{self, ServiceState};
use mcpvisor::gateway::{Gateway, stored_notices};
use mcpvisor::{example_server, telemetry, transport};
use secrecy::SecretString;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let path = arguments.config.as_deref();
    match arguments.verb() {
        Command::Serve => finish(serve(path, ServeMode::Http, arguments.stateless)),
        Command::Stdio(StdioArguments {
            connect: Some(url),
            headers,
        }) => finish(relay(url, headers)),
        Command::Stdio(_) => finish(serve(path, ServeMode::Stdio, arguments.stateless)),
        Command::Check => finish(check(path)),
        Command::Config { verb } => finish(print_config(verb)),
        Command::Status(status) => finish(show_status(path, &status)),
        Command::Servers(servers) => finish(run_servers_command(path, servers)),
        Command::ExampleServer => finish(run_example_server()),
    }
}

/// The error that a command ends with, for stderr.
type CliError = Box<dyn std::error::Error>;

fn finish(outcome: Result<(), CliError>) -> ExitCode {
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
enum ServeMode {
    Http,
    /// One client, over stdin and stdout.
    Stdio,
}

fn serve(path: Option<&Path>, mode: ServeMode, stateless: bool) -> Result<(), CliError> {
    // Before the first thread starts, since this changes the environment.
    let inherited = match mode {
        ServeMode::Http => service::inherited_listener()?,
        ServeMode::Stdio => None,
    };
    transport::install_crypto_provider();
    let mut environment = ProcessEnvironment::new();
    if let Some(listener) = &inherited {
        environment.listens_on(listener.local_addr()?);
    }
    let load = |path: Option<&Path>| {
        let mut loaded = Config::load(path, &environment)?;
        if stateless {
            loaded.config = loaded.config.without_sessions();
        }
        Ok::<_, ConfigError>(loaded)
    };
    let loaded = load(path)?;
    start_logging(&loaded);
    let watched = loaded.path.clone();
    let reload = || load(watched.as_deref().or(path));
    actix::System::new().block_on(run_gateway(loaded, mode, inherited, reload))
}

/// Runs a gateway until a signal or its only client ends it. `reload` reads the configuration
/// again.
async fn run_gateway(
    loaded: Loaded,
    mode: ServeMode,
    inherited: Option<TcpListener>,
    reload: impl Fn() -> Result<Loaded, ConfigError>,
) -> Result<(), CliError> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let watched = loaded.path.clone();
    let watch = watched
        .as_deref()
        .map(|path| Watch::start(path, loaded.fingerprint, &WatchSettings::default()));
    let (_watch, mut changes) = watch.unzip();
    let mut gateway = match mode {
        ServeMode::Http => Gateway::start(loaded, inherited).await?,
        ServeMode::Stdio => Gateway::start_for_stdio(loaded).await?,
    };
    let client = match mode {
        ServeMode::Http => None,
        ServeMode::Stdio => Some(gateway.serve_stdio()?),
    };
    let client_left = async {
        match client {
            Some(client) => client.await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(client_left);
    service::notify(ServiceState::Ready(&gateway.summary()));
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
            () = &mut client_left => break,
        }
        service::notify(ServiceState::Reloading);
        gateway.reload(reload());
        service::notify(ServiceState::Ready(&gateway.summary()));
    }
    service::notify(ServiceState::Stopping);
    tokio::select! {
        () = gateway.stop() => Ok(()),
        _ = terminate.recv() => Err("stopped at once by a second signal".into()),
        _ = tokio::signal::ctrl_c() => Err("stopped at once by a second signal".into()),
    }
}

fn start_logging(loaded: &Loaded) {
    telemetry::init_logging(match loaded.config.log {
        LogFormat::Json => true,
        LogFormat::Human => false,
        LogFormat::Auto => !std::io::stderr().is_terminal(),
    });
    for warning in &loaded.warnings {
        log::warn!("{warning}");
    }
}

/// Relays one client over stdin and stdout to a server elsewhere.
fn relay(url: Url, headers: Vec<Header>) -> Result<(), CliError> {
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

fn check(path: Option<&Path>) -> Result<(), CliError> {
    let environment = ProcessEnvironment::new();
    let loaded = Config::load(path, &environment)?;
    print(&(describe(&loaded) + "\n"))?;
    // Which names are cut is known to a gateway that runs, and from the lists that one kept.
    current_thread_runtime()?.block_on(async {
        if let Ok(status) = ask_status(&loaded.config.data_dir).await {
            return print(&notice_lines(&status));
        }
        match stored_notices(&loaded.config).await {
            Some(notices) => print(&notice_lines(&serde_json::json!({ "notices": notices }))),
            None => print("names          not known: no gateway has listed these servers yet\n"),
        }
    })?;
    match unable_servers(&loaded.config, &environment).as_slice() {
        [] => Ok(()),
        unable => Err(format!("error: {}", unable.join("\nerror: ")).into()),
    }
}

fn print_config(verb: ConfigVerb) -> Result<(), CliError> {
    print(&match verb {
        ConfigVerb::Default => default_file(),
        ConfigVerb::Schema => pretty(&schema())?,
        ConfigVerb::Reference => reference(),
    })
}

/// How often a watched status is shown.
const WATCH_EVERY: Duration = Duration::from_secs(1);

fn show_status(path: Option<&Path>, arguments: &StatusArguments) -> Result<(), CliError> {
    let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
    let shown = |status: &Value| {
        if arguments.json {
            pretty(status)
        } else {
            Ok(tree(status))
        }
    };
    current_thread_runtime()?.block_on(async {
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
            print(&if is_terminal { redraw(&text) } else { text })?;
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                _ = interrupt.recv() => return Ok(()),
            }
            status = ask_status(&data_dir).await;
        }
    })
}

fn run_servers_command(path: Option<&Path>, arguments: ServersArguments) -> Result<(), CliError> {
    let data_dir = Config::data_dir_of(path, &ProcessEnvironment::new())?;
    let ask = |request| -> Result<Value, CliError> {
        let asked: Result<Value, ControlError> =
            current_thread_runtime()?.block_on(async { ask(&data_dir, &request).await });
        Ok(asked?)
    };
    let request = match arguments.verb {
        None => {
            let status = &ask(ControlRequest::Status)?["status"];
            return print(&if arguments.json {
                pretty(&status["servers"])?
            } else {
                server_table(status)
            });
        }
        Some(ServersVerb::Logs { name, json }) => {
            let lines = &ask(ControlRequest::Logs { server: name })?["logs"];
            return print(&if json {
                pretty(lines)?
            } else {
                log_lines(lines)
            });
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = &ask(ControlRequest::Crashes { server: name })?;
            return print(&if json {
                pretty(crashes)?
            } else {
                crash_text(crashes)
            });
        }
        Some(ServersVerb::Restart { name }) => ControlRequest::Restart { server: name },
        Some(ServersVerb::Stop { name }) => ControlRequest::Stop { server: name },
        Some(ServersVerb::Start { name }) => ControlRequest::Start { server: name },
        Some(ServersVerb::Trip { name, tool }) => ControlRequest::Trip { server: name, tool },
        Some(ServersVerb::Reset { name, tool }) => ControlRequest::Reset { server: name, tool },
    };
    let done = ask(request)?;
    print(&format!("{}\n", done["done"].as_str().unwrap_or("done")))
}

/// For commands that run on one thread.
fn current_thread_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn pretty(value: &Value) -> Result<String, CliError> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

fn run_example_server() -> Result<(), CliError> {
    let runtime = current_thread_runtime()?;
    let outcome = runtime.block_on(example_server::run());
    // A thread that still reads stdin would hold the process.
    runtime.shutdown_background();
    Ok(outcome?)
}

fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
