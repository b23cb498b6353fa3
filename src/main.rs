//! The binary: arguments, configuration, gateway, signals, drain.

use std::io::{IsTerminal as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use mcpvisor::admin::{
    AlternateScreen, ControlError, ControlRequest, Instances, Screen, ask, ask_status, crash_text,
    is_served, last_sequence, log_lines, notice_lines, other_gateway, server_table, tree,
};
use mcpvisor::cli::{
    Arguments, Command, ConfigVerb, Header, LogsArguments, ServersArguments, ServersVerb,
    StatusArguments, StdioArguments,
};
use mcpvisor::config::watch::{Watch, WatchSettings};
use mcpvisor::config::{
    Config, ConfigError, Loaded, LogFormat, Lookup, ProcessEnvironment, default_file, describe,
    fill_in, reference, schema, unable_servers,
};
use mcpvisor::front::{Relay, RelaySettings};
use mcpvisor::gateway::service::{self, ServiceState};
use mcpvisor::gateway::{Gateway, stored_notices};
use mcpvisor::telemetry::{one_line, pretty_json, printable};
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
            eprintln!("{}", printable(&error.to_string()));
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

impl ServeMode {
    fn lookup(self) -> Lookup {
        match self {
            Self::Http => Lookup::WorkingDirectory,
            Self::Stdio => Lookup::User,
        }
    }
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
        let mut loaded = Config::load(path, mode.lookup(), &environment)?;
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
    let watched = loaded.path.clone().filter(|_| loaded.config.watch);
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
    let loaded = Config::load(path, Lookup::WorkingDirectory, &environment)?;
    print(&printable(&(describe(&loaded) + "\n")))?;
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

/// How often new lines of a server's log are asked for.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);

/// The data directory of the gateway that a command speaks to: that of this configuration, or
/// where there is none, of the only gateway of this user.
fn gateway_data_dir(path: Option<&Path>) -> Result<PathBuf, CliError> {
    let environment = ProcessEnvironment::new();
    let here = Config::data_dir_of(path, &environment)?;
    if is_served(&here) {
        return Ok(here);
    }
    let is_named = path.is_some()
        || std::env::var_os("MCPVISOR_DATA").is_some()
        || Lookup::WorkingDirectory.finds_any(&environment);
    let running = Instances::of_user().map_or_else(|_| Vec::new(), |found| found.running());
    let other = other_gateway(&running, &here, !is_named)?;
    let config = other.config.as_ref();
    let config = config.map_or("built in".to_owned(), |path| path.display().to_string());
    eprintln!("gateway with pid {}, configuration {config}", other.pid);
    Ok(other.data_dir.clone())
}

fn show_status(path: Option<&Path>, arguments: &StatusArguments) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let shown = |status: &Value, screen: &Screen| {
        if arguments.json {
            pretty(status)
        } else {
            Ok(tree(status, screen))
        }
    };
    current_thread_runtime()?.block_on(async {
        let screen = Screen::of_stdout();
        if !arguments.watch {
            return print(&shown(&ask_status(&data_dir).await?, &screen)?);
        }
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // The first answer tells whether there is anything to watch.
        let mut status = Ok(ask_status(&data_dir).await?);
        let stdout = std::io::stdout();
        let mut alternate = match stdout.is_terminal() {
            true => Some(AlternateScreen::enter(stdout)?),
            false => None,
        };
        loop {
            let screen = Screen::of_stdout();
            let text = match &status {
                Ok(status) => shown(status, &screen)?,
                Err(error) => printable(&format!("{error}\n")),
            };
            match &mut alternate {
                Some(alternate) => alternate.draw(&screen.cut_lines(&text))?,
                None => print(&text)?,
            }
            tokio::select! {
                () = tokio::time::sleep(WATCH_EVERY) => {}
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
            status = ask_status(&data_dir).await;
        }
    })
}

fn run_servers_command(path: Option<&Path>, arguments: ServersArguments) -> Result<(), CliError> {
    let data_dir = gateway_data_dir(path)?;
    let screen = Screen::of_stdout();
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
                server_table(status, &screen)
            });
        }
        Some(ServersVerb::Logs(logs)) => {
            return current_thread_runtime()?.block_on(show_logs(&data_dir, logs));
        }
        Some(ServersVerb::Crashes { name, json }) => {
            let crashes = &ask(ControlRequest::Crashes { server: name })?;
            return print(&if json {
                pretty(crashes)?
            } else {
                crash_text(crashes, &screen)
            });
        }
        Some(ServersVerb::Restart { name }) => ControlRequest::Restart { server: name },
        Some(ServersVerb::Stop { name }) => ControlRequest::Stop { server: name },
        Some(ServersVerb::Start { name }) => ControlRequest::Start { server: name },
        Some(ServersVerb::Kill { name }) => ControlRequest::Kill { server: name },
        Some(ServersVerb::Trip { name, tool }) => ControlRequest::Trip { server: name, tool },
        Some(ServersVerb::Reset { name, tool }) => ControlRequest::Reset { server: name, tool },
    };
    let done = ask(request)?;
    let done = done["done"].as_str().unwrap_or("done");
    print(&format!("{}\n", one_line(done)))
}

async fn show_logs(data_dir: &Path, arguments: LogsArguments) -> Result<(), CliError> {
    let screen = Screen::of_stdout();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut request = ControlRequest::Logs {
        server: arguments.name.clone(),
        after: 0,
        last: arguments.lines,
    };
    let mut seen = 0;
    loop {
        let lines = &ask(data_dir, &request).await?["logs"];
        print(&if arguments.json {
            pretty(lines)?
        } else {
            log_lines(lines, &screen)
        })?;
        if !arguments.follow {
            return Ok(());
        }
        match last_sequence(lines) {
            0 => {}
            last => seen = last,
        }
        request = ControlRequest::Logs {
            server: arguments.name.clone(),
            after: seen,
            last: None,
        };
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_EVERY) => {}
            _ = interrupt.recv() => return Ok(()),
        }
    }
}

/// For commands that run on one thread.
fn current_thread_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn pretty(value: &Value) -> Result<String, CliError> {
    Ok(pretty_json(value)? + "\n")
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
